// Files that are either whole or not there.
#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace remcaps {

/// Writes a file atomically: `write` fills a temporary file beside `path`, which is flushed to disk
/// and renamed over it. On any failure (a full disk among them) the old file is untouched and the
/// temporary one removed. A symbolic link stays one: what it leads to is replaced. Where `path` is
/// a device or a pipe (/dev/stdout) there is nothing to replace, and `write` fills that.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write);

/// The same for a text that is already in memory.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// The whole content of a file; Error names the file where it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Whether a relative path stays below the folder it is joined to.
bool stays_below(const std::filesystem::path& relative);

/// Creates a folder and its parents; Error names what stands in the way.
void make_folder(const std::filesystem::path& path);

/// For a file that will be written after minutes of work: creates its folder, and Error says now
/// what stands in its way.
void prepare_output(const std::filesystem::path& file);

}  // namespace remcaps
