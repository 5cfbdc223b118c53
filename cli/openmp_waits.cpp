// OpenMP's threads spin for milliseconds while they wait. On a busy machine a spinning thread keeps
// a core from a thread that has work. GOMP_SPINCOUNT makes these waits short: 3000 is as fast as
// more on a machine without other work, and half as fast again as 10000 beside eight busy processes.
//
// libgomp reads the variable when it is initialised, before main(). To start the program again with
// the variable set would load libtorch twice. Instead the function below runs before any library is
// initialised (.preinit_array, which only a program can have). It cannot make the environment
// longer at that time, so the variable takes the place of one that no library reads, until main()
// starts.
#include "cli/openmp_waits.h"

#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace remcaps::cli {
namespace {

char short_waits[] = "GOMP_SPINCOUNT=3000";
char* borrowed = nullptr;  // what stood in its place

char** find_variable(char** environment, const char* name_and_equals) {
  for (; *environment != nullptr; ++environment)
    if (std::strncmp(*environment, name_and_equals, std::strlen(name_and_equals)) == 0)
      return environment;
  return nullptr;
}

void shorten_waits(int, char**, char** environment) {
  for (const char* chosen_by_user : {"GOMP_SPINCOUNT=", "OMP_WAIT_POLICY="})
    if (find_variable(environment, chosen_by_user) != nullptr) return;
  for (const char* unread : {"_=", "OLDPWD=", "SHLVL=", "PWD=", "HOME=", "PATH="})
    if (char** place = find_variable(environment, unread)) {
      borrowed = *place;
      *place = short_waits;
      return;
    }
}

[[gnu::section(".preinit_array"), gnu::used]] void (*before_libraries)(int, char**,
                                                                       char**) = shorten_waits;

}  // namespace

void restore_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (*entry == short_waits) *entry = borrowed;
}

}  // namespace remcaps::cli
