/* remcaps in C: trained capsule networks on a CPU, without libtorch.
 *
 * The file of a network is written by `remcaps export`. Functions that return int give 0, or -1 if
 * they failed; remcaps_error() then says why. Several threads may use one network, except while it
 * is closed or its number of threads is set. */
#ifndef REMCAPS_C_REMCAPS_H
#define REMCAPS_C_REMCAPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct remcaps_network remcaps_network;

/* Reads a network and packs its weights. NULL if that failed. */
remcaps_network* remcaps_open(const char* path);
/* NULL is allowed. */
void remcaps_close(remcaps_network* network);

/* What went wrong in the last call of this thread that failed: one line. */
const char* remcaps_error(void);

/* Threads that a call may use; by default as many as there are cores. */
int remcaps_set_threads(remcaps_network* network, int threads);

typedef struct {
  const char* name;                /* "dr-capsnet" */
  int64_t channels, height, width; /* of an input image */
  int64_t classes;
  int64_t pose_size; /* numbers of a class capsule */
  int64_t routing_layers;
} remcaps_description;

/* A routing layer: one level of the parse tree. A fully connected layer has one position. */
typedef struct {
  const char* name;
  int64_t positions, children, parents;
  int64_t levels;     /* of quantized couplings; 0: none */
  int64_t key_length; /* bytes of its keys; 0: none */
} remcaps_layer;

int remcaps_describe(const remcaps_network* network, remcaps_description* description);
int remcaps_describe_layer(const remcaps_network* network, int64_t layer, remcaps_layer* of_layer);
/* NULL if there is no such class. */
const char* remcaps_class_name(const remcaps_network* network, int64_t class_index);

/* A picture of any size, bytes [height, width, channels] with 1 or 3 channels, as an input image:
 * resized and normalised floats [C, H, W]. */
int remcaps_prepare(const remcaps_network* network, const uint8_t* pixels, int64_t height,
                    int64_t width, int64_t channels, float* image);

/* The length of each class capsule of a picture, [classes]: how certain the network is. */
int remcaps_classify_bytes(const remcaps_network* network, const uint8_t* pixels, int64_t height,
                           int64_t width, int64_t channels, float* lengths);

/* The same for input images [images, C, H, W]: lengths [images, classes]. `poses`, [images,
 * classes, pose_size], may be NULL. */
int remcaps_classify_floats(const remcaps_network* network, const float* input, int64_t images,
                            float* lengths, float* poses);

/* The couplings of a routing layer for one input image, [positions, children, parents]. `quantized`:
 * those of a pass with rounded couplings. */
int remcaps_couplings(const remcaps_network* network, const float* image, int64_t layer,
                      int quantized, float* couplings);

/* The levels of the same quantized couplings, 0 to levels - 1. */
int remcaps_levels(const remcaps_network* network, const float* image, int64_t layer,
                   uint8_t* levels);

/* The key of an image's parse tree at a routing layer, key_length bytes. `class_index`, the class
 * predicted with quantized couplings, may be NULL. Two images of a class have the same parse tree
 * if their keys at the last layer are equal. */
int remcaps_tree_key(const remcaps_network* network, const float* image, int64_t layer,
                     uint8_t* key, int64_t* class_index);

/* Where in an input image the answer for a class comes from, [height, width] of an input image. A
 * class_index of -1 is the predicted class. Fails if the capsules have no place in the image. */
int remcaps_saliency(const remcaps_network* network, const float* image, int64_t class_index,
                     float* map);

/* A dictionary of parse trees: the file that `remcaps entropy --save` wrote for this network. */
typedef struct remcaps_dictionary remcaps_dictionary;

/* NULL if that failed. The network may be closed before the dictionary. */
remcaps_dictionary* remcaps_open_dictionary(const char* path, const remcaps_network* network);
/* NULL is allowed. */
void remcaps_close_dictionary(remcaps_dictionary* dictionary);

/* Where a parse tree stands in the dictionary of its class. */
typedef struct {
  int64_t images;       /* that have this tree; 0: the dictionary does not know it */
  int64_t class_images; /* of the whole class */
  int64_t rank;         /* 1: no tree of the class is more frequent; 0: not known */
  int64_t class_trees;
} remcaps_tree_place;

/* `key` and `class_index` as remcaps_tree_key() gives them at the last layer. */
int remcaps_find_tree(const remcaps_dictionary* dictionary, const uint8_t* key, int64_t class_index,
                      remcaps_tree_place* place);

#ifdef __cplusplus
}
#endif

#endif
