// Files that are either whole or not there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace remcaps {

/// Writes a file atomically: `write` fills a temporary file in the same folder, which is flushed to
/// disk and renamed to `path`. On any failure (a full disk, for example) the old file stays as it
/// was and the temporary one is removed. If the program is killed, nothing is left of it either
/// where the file system has files without a name. A file that is replaced keeps its permissions. If `path`
/// is a symbolic link, the link is replaced and the file it leads to stays as it is. If it is a
/// device or a pipe (/dev/stdout), `write` writes to it directly.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write);

/// The same for a text that is already in memory.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Appends to a file that exists and flushes it to disk. On failure the file is cut back to what it
/// was. A symbolic link is an error.
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// The whole content of a file. Error names the file if it cannot be read, is no plain file (but a
/// device or a pipe) or has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

/// Whether a relative path stays below the folder it is joined to.
bool stays_below(const std::filesystem::path& relative);

/// Creates a folder and its parents. Error names what stands in the way.
void make_folder(const std::filesystem::path& path);

/// For a file that will be written after minutes of work: creates its folder, and reports now
/// anything that would keep it from being written.
void prepare_output(const std::filesystem::path& file);

}  // namespace remcaps
