#include "cli/openmp_waits.h"
#include "remcaps/program.h"

int main(int argc, char** argv) {
  remcaps::cli::restore_environment();
  return remcaps::run_program(argc, argv);
}
