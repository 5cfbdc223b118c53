// How a layer of many capsules is laid out as tiles: one for each capsule type, one cell for each
// place. web/src/tiles.ts does the same; tests/explain/trees.json tests both.
#pragma once

#include <string>
#include <vector>

#include "remcaps/capsule/forward.h"

namespace remcaps {

struct CapsuleTiles {
  struct Tile {
    double x = 0, y = 0, width = 0, height = 0;
    int64_t capsules = 0;
    std::string name;  ///< "type 3", or "map 1, type 3" of several grids
  };
  struct Cell {
    size_t tile = 0;
    double x = 0, y = 0;  ///< its centre
    double side = 0;
    std::string name;  ///< "type 3, row 0, column 5", or "capsule 200"
  };
  std::vector<Tile> tiles;
  std::vector<Cell> cells;  ///< one for each capsule
  double bottom = 0;
  bool have_places = false;  ///< if not, one tile holds all capsules in their order
};

/// How many tiles stand in a row.
int64_t tiles_per_row(const CapsuleGrid& grid);

/// The side of a cell's square, as a part of the cell: never too small to be seen.
double cell_side(double activation, double largest_activation);

/// Fills left..right from `top` down, grid below grid. If some capsules have no place, the places
/// of the others are not used either.
CapsuleTiles lay_out_tiles(int64_t capsules, std::vector<CapsuleGrid> grids, double left,
                           double right, double top);

}  // namespace remcaps
