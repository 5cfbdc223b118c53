/* Classifies a picture with an exported network, in C99 and without libtorch.
 *
 *   remcaps export zoo:mnist/dr-capsnet-rem --out small.safetensors
 *   embed small.safetensors picture.pgm
 *
 * The picture is a binary PGM (grey) or PPM (colour) file, of any size. */
#include <stdio.h>
#include <stdlib.h>

#include <remcaps/c/remcaps.h>

struct picture {
  int width, height, channels;
  unsigned char* pixels;
};

static int read_picture(const char* path, struct picture* picture) {
  char kind = 0;
  int largest = 0;
  size_t bytes;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return -1;
  picture->pixels = NULL;
  if (fscanf(file, "P%c %d %d %d", &kind, &picture->width, &picture->height, &largest) == 4 &&
      (kind == '5' || kind == '6') && largest == 255 && picture->width > 0 &&
      picture->width <= 32768 && picture->height > 0 && picture->height <= 32768) {
    fgetc(file); /* the line break before the pixels */
    picture->channels = kind == '5' ? 1 : 3;
    bytes = (size_t)picture->width * (size_t)picture->height * (size_t)picture->channels;
    picture->pixels = malloc(bytes);
    if (picture->pixels != NULL && fread(picture->pixels, 1, bytes, file) != bytes) {
      free(picture->pixels);
      picture->pixels = NULL;
    }
  }
  fclose(file);
  return picture->pixels != NULL ? 0 : -1;
}

static int show(const remcaps_network* network, const struct picture* picture) {
  remcaps_description about;
  float* lengths;
  int64_t best = 0, j;
  if (remcaps_describe(network, &about) != 0) return -1;
  lengths = malloc((size_t)about.classes * sizeof(float));
  if (lengths == NULL) return -1;
  if (remcaps_classify_bytes(network, picture->pixels, picture->height, picture->width,
                             picture->channels, lengths) != 0) {
    free(lengths);
    return -1;
  }
  for (j = 1; j < about.classes; ++j)
    if (lengths[j] > lengths[best]) best = j;
  printf("%s predicted %s (%.3f)\n", about.name, remcaps_class_name(network, best), lengths[best]);
  free(lengths);
  return 0;
}

int main(int argc, char** argv) {
  struct picture picture;
  remcaps_network* network;
  int failed;
  if (argc != 3) {
    fprintf(stderr, "usage: embed NETWORK.safetensors PICTURE.pgm\n");
    return 2;
  }
  if (read_picture(argv[2], &picture) != 0) {
    fprintf(stderr, "embed: %s: not a binary PGM or PPM picture\n", argv[2]);
    return 1;
  }
  network = remcaps_open(argv[1]);
  failed = network == NULL || show(network, &picture) != 0;
  if (failed) fprintf(stderr, "embed: %s\n", remcaps_error());
  remcaps_close(network);
  free(picture.pixels);
  return failed;
}
