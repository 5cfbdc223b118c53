// Unpacking the archives that data sets are published in: gzip, and tar and zip with libarchive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace remcaps {

/// Where a member of an archive goes, from its path inside; an empty path skips it. Folders are
/// made as needed. A member whose own path is absolute or climbs out ("..") is an error before this
/// is called.
using PlaceMember = std::function<std::filesystem::path(const std::string& member)>;

/// Whether this build can unpack tar and zip archives (libarchive was there). If not, unpack_tar
/// and unpack_zip are errors that say so.
bool can_unpack_archives();

/// Unpacks the regular files of a tar archive, plain or gzip-compressed; links are skipped. Error
/// if it is cut short or damaged, or if its files together pass `most` bytes.
void unpack_tar(const std::filesystem::path& archive, const PlaceMember& place, int64_t most);

/// The same for a zip archive; every member's CRC is checked.
void unpack_zip(const std::filesystem::path& archive, const PlaceMember& place, int64_t most);

/// Decompresses a gzip file. Error if it is damaged or its content passes `most` bytes.
void gunzip(const std::filesystem::path& from, const std::filesystem::path& to, int64_t most);

/// How much a file of unknown content may unpack to: 100 times its own size, at least 64 MiB.
int64_t sensible_unpacked_size(const std::filesystem::path& file);

}  // namespace remcaps
