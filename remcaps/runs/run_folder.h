// The folder of a run: its files, its name, and the lock that keeps two trainings apart.
//
//   recipe.yaml          the resolved recipe
//   run.json             where the data were found, device, versions
//   metrics.csv          one row per epoch
//   best.safetensors     weights and buffers at the lowest validation loss
//   last.safetensors     weights and buffers after the last epoch
//   epoch-NNNN.safetensors   epochs the recipe's metrics.keep_epochs names
//   state.safetensors    everything an exact resume needs
//   summary.json         written when the run ends by itself
#pragma once

#include <filesystem>
#include <string>

#include "remcaps/recipe/recipe.h"

namespace remcaps {

class RunFolder {
 public:
  /// An existing run. Error where the folder is none.
  static RunFolder open(const std::filesystem::path& path);

  /// A fresh folder parent/seed-<seed>, or seed-<seed>-2, -3, ... where that name is taken: an
  /// existing run is never overwritten.
  static RunFolder create(const std::filesystem::path& parent, int64_t seed);

  /// parent/seed-<seed>, and from the second on seed-<seed>-<k>.
  static std::filesystem::path name(const std::filesystem::path& parent, int64_t seed, int64_t k);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path recipe() const { return path_ / "recipe.yaml"; }
  std::filesystem::path info() const { return path_ / "run.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.csv"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  std::filesystem::path last() const { return path_ / "last.safetensors"; }
  std::filesystem::path state() const { return path_ / "state.safetensors"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }
  std::filesystem::path epoch(int64_t epoch) const;

  /// Removes what a killed process left half-written.
  void remove_leftovers() const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// The resolved recipe of an existing run.
Recipe read_run_recipe(const RunFolder& folder);

/// <data set>/<recipe's own name>: where files about a recipe's networks are kept apart from
/// others'.
std::filesystem::path folder_of_recipe(const Recipe& recipe);

/// runs/<data set>/<recipe's own name>: where a recipe's runs go unless the user says otherwise.
std::filesystem::path default_runs_folder(const Recipe& recipe);

/// Held while a process trains in a folder; gone with the process, however it ends. Error where
/// another process holds it.
class RunLock {
 public:
  explicit RunLock(const RunFolder& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_;
};

}  // namespace remcaps
