// The folder of a run: its files, its name, and a lock against training it twice at a time.
//
//   recipe.yaml          the resolved recipe
//   run.json             where the data were found, device, versions
//   metrics.csv          one row per epoch
//   best.safetensors     weights and buffers at the lowest validation loss
//   last.safetensors     weights and buffers after the last epoch
//   epoch-NNNN.safetensors   weights of the epochs in metrics.keep_epochs
//   state.safetensors    everything that an exact resume needs
//   summary.json         written when the run ends by itself
#pragma once

#include <filesystem>
#include <string>

#include "remcaps/recipe/recipe.h"
#include "remcaps/runs/file_lock.h"

namespace remcaps {

class RunFolder {
 public:
  /// An existing run. Error if the folder is not a run's.
  static RunFolder open(const std::filesystem::path& path);

  /// A new folder parent/seed-<seed>, or seed-<seed>-2, -3, ... if that exists. An existing run is
  /// never overwritten.
  static RunFolder create(const std::filesystem::path& parent, int64_t seed);

  /// parent/seed-<seed> for k = 1, otherwise parent/seed-<seed>-<k>.
  static std::filesystem::path name(const std::filesystem::path& parent, int64_t seed, int64_t k);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path recipe() const { return path_ / "recipe.yaml"; }
  std::filesystem::path info() const { return path_ / "run.json"; }
  std::filesystem::path metrics() const { return path_ / "metrics.csv"; }
  std::filesystem::path best() const { return path_ / "best.safetensors"; }
  std::filesystem::path last() const { return path_ / "last.safetensors"; }
  std::filesystem::path state() const { return path_ / "state.safetensors"; }
  std::filesystem::path summary() const { return path_ / "summary.json"; }
  std::filesystem::path lock() const { return path_ / ".lock"; }
  std::filesystem::path epoch(int64_t epoch) const;

  /// Removes the temporary files that a killed process left.
  void remove_leftovers() const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

/// The resolved recipe of an existing run.
Recipe read_run_recipe(const RunFolder& folder);

/// <data set>/<last part of the recipe's name>: the sub-folder for files about a recipe's networks.
std::filesystem::path folder_of_recipe(const Recipe& recipe);

/// runs/<data set>/<last part of the recipe's name>: the default folder of a recipe's runs.
std::filesystem::path default_runs_folder(const Recipe& recipe);

/// A lock on the file .lock in a run folder. A process holds it while it trains the run; it ends
/// with the process, even if the process is killed. Error if another process holds it.
class RunLock {
 public:
  explicit RunLock(const RunFolder& folder);
  /// How far the run has come, for `remcaps status` (status.h).
  void set_note(std::string_view text) { lock_.set_note(text); }

 private:
  FileLock lock_;
};

}  // namespace remcaps
