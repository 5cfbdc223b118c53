#include "remcaps/data/fetch.h"

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/names.h"
#include "remcaps/base/text.h"
#include "remcaps/data/checksum.h"
#include "remcaps/data/download.h"
#include "remcaps/data/formats/archive.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

// How many bytes a download may unpack to: those of its file, or of all files if it is an archive.
int64_t most_unpacked(const DatasetDescriptor& dataset, const Download& download,
                      const fs::path& file) {
  int64_t total = 0;
  for (const PublishedFile& known : dataset.files) {
    if (known.bytes == 0) return sensible_unpacked_size(file);
    if (download.unpack == Unpack::kGunzip && known.path == download.target) return known.bytes;
    total += known.bytes;
  }
  return total > 0 ? total : sensible_unpacked_size(file);
}

// Twice what its files have, for archives that hold others too.
int64_t most_downloaded(const DatasetDescriptor& dataset) {
  int64_t total = 0;
  for (const PublishedFile& known : dataset.files) {
    if (known.bytes == 0) return kMostDownloaded;
    total += known.bytes;
  }
  return total > 0 ? 2 * total + (64 << 20) : kMostDownloaded;
}

void unpack(const DatasetDescriptor& dataset, const fs::path& file, const Download& download,
            const fs::path& folder) {
  const fs::path target = download.target.empty() ? folder : folder / download.target;
  const int64_t most = most_unpacked(dataset, download, file);
  const auto place = [&](const std::string& member) {
    if (!matches_pattern(download.members, member)) return fs::path();
    return target / (download.flatten ? fs::path(member).filename() : fs::path(member));
  };
  switch (download.unpack) {
    case Unpack::kNone:
      make_folder(target.parent_path());
      fs::rename(file, target);
      return;
    case Unpack::kGunzip:
      gunzip(file, target, most);
      break;
    case Unpack::kTar:
      unpack_tar(file, place, most);
      break;
    case Unpack::kZip:
      unpack_zip(file, place, most);
      break;
  }
  fs::remove(file);
}

// What this build lacks to fetch from a provider is said before anything is downloaded.
void check_build(const Provider& provider) {
  check(can_download(), "this build of remcaps downloads nothing (libcurl was missing)");
  check(can_checksum(),
        "this build of remcaps cannot check what it downloads (OpenSSL was missing)");
  for (const Download& download : provider.downloads)
    check(can_unpack_archives() ||
              (download.unpack != Unpack::kTar && download.unpack != Unpack::kZip),
          "{}: this build of remcaps unpacks no archives (libarchive was missing)", download.url);
}

void check_contents(const DatasetDescriptor& dataset, const fs::path& folder) {
  for (const PublishedFile& file : dataset.files) {
    const fs::path path = folder / file.path;
    check(fs::is_regular_file(path), "{}: is not in what was downloaded", file.path);
    if (file.sha256.empty()) continue;
    const std::string found = sha256_of_file(path);
    check(found == file.sha256, "{}: {} bytes with the SHA-256 {}; expected {}", file.path,
          with_commas(static_cast<int64_t>(fs::file_size(path))), found, file.sha256);
  }
}

// Moves every file of `from` to the same place under `to`.
void move_into_place(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (!entry.is_regular_file()) continue;
    const fs::path target = to / fs::relative(entry.path(), from);
    make_folder(target.parent_path());
    fs::rename(entry.path(), target);
  }
}

// Removes the workshop unless a download waits in it to be resumed.
void tidy(const fs::path& workshop) {
  std::error_code ignored;
  fs::remove(workshop, ignored);
  fs::remove(workshop.parent_path(), ignored);
}

class RemovedFolder {
 public:
  explicit RemovedFolder(fs::path path) : path_(std::move(path)) { fs::remove_all(path_); }
  ~RemovedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  RemovedFolder(const RemovedFolder&) = delete;
  RemovedFolder& operator=(const RemovedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void fetch_from(const DatasetDescriptor& dataset, const Provider& provider,
                const fs::path& workshop, const fs::path& home,
                const std::function<void(const std::string&)>& say) {
  check_build(provider);
  const RemovedFolder unpacked(workshop / "unpacked");
  make_folder(unpacked.path());
  for (const Download& download : provider.downloads) {
    const bool npm = download.url.rfind("npm:", 0) == 0;
    const std::string url =
        npm ? npm_tarball(download.url.substr(4), npm_registry()) : download.url;
    const fs::path file = workshop / fs::path(url).filename();
    say(fmt::format("{}: {}", dataset.name, url));
    download_file(url, file, download.sha256, most_downloaded(dataset));
    try {
      unpack(dataset, file, download, unpacked.path());
    } catch (...) {
      fs::remove(file);  // whole, but not what it should be: resuming would not mend it
      throw;
    }
  }
  check_contents(dataset, unpacked.path());
  move_into_place(unpacked.path(), home);
}

}  // namespace

fs::path fetch_dataset(const DatasetDescriptor& dataset, const fs::path& root,
                       const std::function<void(const std::string&)>& say) {
  check(!dataset.providers.empty(), "{} cannot be fetched: {}", dataset.name, dataset.by_hand);
  const fs::path home = root / dataset.homes.front();
  const fs::path workshop = root / ".fetch" / dataset.name;
  std::string failures;
  for (const Provider& provider : dataset.providers) {
    try {
      fetch_from(dataset, provider, workshop, home, say);
      fs::remove_all(workshop);
      tidy(workshop);
      return home;
    } catch (const Error& error) {
      failures +=
          fmt::format("{}{}: {}", failures.empty() ? "" : "; ", provider.label, error.what());
      if (&provider != &dataset.providers.back())
        say(fmt::format("{}: {} failed ({}); trying the next source", dataset.name, provider.label,
                        error.what()));
    } catch (const fs::filesystem_error& error) {
      fail("{}: {}", error.path1().string(), error.code().message());
    }
  }
  tidy(workshop);
  fail("{} could not be fetched: {}{}{}", dataset.name, failures,
       dataset.by_hand.empty() ? "" : "; ", dataset.by_hand);
}

}  // namespace remcaps
