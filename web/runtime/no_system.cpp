// What base/cpu.h and the C library would ask of a system. There is none: a module that imports nothing runs in any
// page without further code.
#include <wasi/api.h>

#include "remcaps/base/cpu.h"

int remcaps::usable_cores() {
  return 1;
}

extern "C" {

__wasi_errno_t __wasi_environ_sizes_get(__wasi_size_t* count, __wasi_size_t* size) {
  *count = *size = 0;
  return __WASI_ERRNO_SUCCESS;
}

__wasi_errno_t __wasi_environ_get(uint8_t**, uint8_t*) {
  return __WASI_ERRNO_SUCCESS;
}

__wasi_errno_t __wasi_fd_close(__wasi_fd_t) {
  return __WASI_ERRNO_NOSYS;
}

__wasi_errno_t __wasi_fd_seek(__wasi_fd_t, __wasi_filedelta_t, __wasi_whence_t,
                              __wasi_filesize_t*) {
  return __WASI_ERRNO_NOSYS;
}

__wasi_errno_t __wasi_fd_write(__wasi_fd_t, const __wasi_ciovec_t*, size_t, __wasi_size_t*) {
  return __WASI_ERRNO_NOSYS;
}

void __wasi_proc_exit(__wasi_exitcode_t) {
  __builtin_trap();
}

}  // extern "C"
