// Downloads over HTTP(S) that resume where they stopped and end with a checksum.
#pragma once

#include <filesystem>
#include <string>

namespace remcaps {

/// Whether this build can download (libcurl was there).
bool can_download();

/// Downloads `url` to `target`. The bytes gather in `target`.part: a transfer that breaks off is
/// taken up again there, now (a few times, while it still makes headway) or at the next call; where
/// the server's file has changed since, or nothing says that it has not, it begins anew. The file
/// gets its name only once it is complete and, where `sha256` is given, has that checksum; a
/// .part with a wrong one is removed.
///
/// Error names the address, what was found and what was expected.
void download_file(const std::string& url, const std::filesystem::path& target,
                   const std::string& sha256);

/// The registry npm is configured for: $npm_config_registry, else what npm itself says, else
/// https://registry.npmjs.org. Without a slash at its end.
std::string npm_registry();

/// The address of a package's tarball at `registry`, from "name@version".
std::string npm_tarball(const std::string& package, const std::string& registry);

}  // namespace remcaps
