#include "remcaps/program.h"

int main(int argc, char** argv) {
  return remcaps::run_program(argc, argv);
}
