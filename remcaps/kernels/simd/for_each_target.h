// Compiles the including file once per instruction set. A *_simd.cpp file begins with
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "remcaps/kernels/<its own path>"
//   #include "remcaps/kernels/simd/for_each_target.h"
// and includes lanes.h after that. Without Highway the file is compiled once.
//
// No include guard: Highway's own header has one.
#ifdef REMCAPS_HIGHWAY
// Vectors are kept in arrays. Scalable vectors cannot be.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#endif
