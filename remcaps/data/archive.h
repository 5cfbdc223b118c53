// Unpacking what data sets are published in: gzip, tar and zip.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace remcaps {

/// Where a member of an archive goes, from its path inside; an empty path skips it. Folders are
/// made as needed. A member whose own path is absolute or climbs out ("..") is an error before this
/// is asked.
using PlaceMember = std::function<std::filesystem::path(const std::string& member)>;

/// Unpacks the regular files of a tar archive, plain or gzip-compressed. Error where it is cut
/// short or damaged.
void unpack_tar(const std::filesystem::path& archive, const PlaceMember& place);

/// The same for a zip archive (stored and deflated members, zip64); every member's CRC is checked.
void unpack_zip(const std::filesystem::path& archive, const PlaceMember& place);

/// Decompresses a gzip file.
void gunzip(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace remcaps
