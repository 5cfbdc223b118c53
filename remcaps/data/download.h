// Downloads over HTTP(S): resumed if they break off, checked when they are complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace remcaps {

/// Whether this build can download (libcurl was there).
bool can_download();

/// Bytes of a download where nothing else is known.
constexpr int64_t kMostDownloaded = int64_t{4} << 30;

/// Downloads `url` to `target`. The bytes gather in `target`.part. If a transfer breaks off, it is
/// resumed: a few times now, as long as bytes arrive, else by the next call. It starts again from
/// the beginning if the server's file has changed, or if nothing tells whether it has. The file
/// gets its name only when it is complete and has the checksum `sha256` (empty: not checked). A
/// .part with a wrong checksum is removed, and so is one of more than `most` bytes. Certificates
/// are checked, and redirects lead to HTTP(S) only.
///
/// Error names the address, what was found and what was expected.
void download_file(const std::string& url, const std::filesystem::path& target,
                   const std::string& sha256, int64_t most = kMostDownloaded);

/// The registry npm is configured for: $npm_config_registry, else what npm itself says, else
/// https://registry.npmjs.org. Without a slash at its end.
std::string npm_registry();

/// The address of a package's tarball at `registry`, from "name@version".
std::string npm_tarball(const std::string& package, const std::string& registry);

}  // namespace remcaps
