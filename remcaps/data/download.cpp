#include "remcaps/data/download.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/progress.h"
#include "remcaps/base/text.h"
#include "remcaps/data/checksum.h"

#if defined(REMCAPS_HAVE_CURL)
#include <curl/curl.h>
#endif

namespace remcaps {
namespace fs = std::filesystem;

#if defined(REMCAPS_HAVE_CURL)
namespace {

int64_t size_or_zero(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// Beside a .part, what the server knew its file by when it began to send it.
fs::path tag_file(const fs::path& part) {
  return part.string() + ".tag";
}

std::string read_tag(const fs::path& part) {
  std::ifstream in(tag_file(part));
  std::string tag;
  std::getline(in, tag);
  return tag;
}

void discard(const fs::path& part) {
  fs::remove(part);
  fs::remove(tag_file(part));
}

struct Transfer {
  CURL* handle = nullptr;
  std::ofstream file;
  fs::path part;
  int64_t begin = 0;     // bytes that were there before
  int64_t received = 0;  // bytes that have come
  int64_t most = 0;      // bytes it may have in all
  std::unique_ptr<Progress> progress;
  std::string label;

  bool is_too_large() const { return begin + received > most; }
};

// The file's ETag, else its date; a weak ETag does not promise the same bytes.
std::string tag_of_answer(CURL* handle) {
  for (const char* name : {"ETag", "Last-Modified"}) {
    curl_header* header = nullptr;
    if (curl_easy_header(handle, name, 0, CURLH_HEADER, -1, &header) == CURLHE_OK &&
        !std::string_view(header->value).starts_with("W/"))
      return header->value;
  }
  return "";
}

size_t on_data(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  if (transfer->begin == 0 && transfer->received == 0)
    std::ofstream(tag_file(transfer->part)) << tag_of_answer(transfer->handle);
  transfer->received += static_cast<int64_t>(size * count);
  if (transfer->is_too_large()) return 0;
  transfer->file.write(data, static_cast<std::streamsize>(size * count));
  return transfer->file.good() ? size * count : 0;
}

int on_progress(void* user, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(user);
  if (total <= 0) return 0;
  if (transfer->progress == nullptr)
    transfer->progress = std::make_unique<Progress>(transfer->label, transfer->begin + total);
  const int64_t done = transfer->begin + now;
  transfer->progress->update(
      done, fmt::format("{} of {}", human_bytes(static_cast<double>(done)),
                        human_bytes(static_cast<double>(transfer->begin + total))));
  return 0;
}

struct Outcome {
  CURLcode code = CURLE_OK;
  long status = 0;  // HTTP
  std::string message;
};

// One request for what is missing of `part`.
Outcome transfer_rest(const std::string& url, const fs::path& part, int64_t most) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  check(ready == CURLE_OK, "{}: libcurl cannot start", url);
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(), curl_easy_cleanup);
  check(curl != nullptr, "{}: libcurl cannot start", url);

  Transfer transfer;
  transfer.handle = curl.get();
  transfer.part = part;
  transfer.begin = size_or_zero(part);
  transfer.most = most;
  transfer.label = fs::path(url).filename().string();
  errno = 0;
  transfer.file.open(part, std::ios::binary | std::ios::app);
  check(transfer.file.good(), "{}: cannot write: {}", part.string(), std::strerror(errno));

  char message[CURL_ERROR_SIZE] = "";
  CURL* handle = curl.get();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, 8L);
  curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "remcaps");
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, 15L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 100L);  // bytes a second, for as long as
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, 60L);
  curl_easy_setopt(handle, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.begin));
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);

  // A server whose file is another one by now sends all of it instead of the rest.
  const std::string tag = transfer.begin > 0 ? read_tag(part) : "";
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(
      tag.empty() ? nullptr : curl_slist_append(nullptr, ("If-Range: " + tag).c_str()),
      curl_slist_free_all);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());

  Outcome outcome;
  outcome.code = curl_easy_perform(handle);
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &outcome.status);
  outcome.message = message[0] != '\0' ? message : curl_easy_strerror(outcome.code);
  transfer.file.close();
  if (transfer.is_too_large()) {
    discard(part);
    fail("{}: sends more than {} bytes", url, with_commas(most));
  }
  check(!transfer.file.fail() && outcome.code != CURLE_WRITE_ERROR, "{}: writing failed: {}",
        part.string(), std::strerror(errno));
  return outcome;
}

bool is_interruption(CURLcode code) {
  return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
         code == CURLE_OPERATION_TIMEDOUT || code == CURLE_HTTP2_STREAM || code == CURLE_HTTP2;
}

// Brings `part` to its full length. True if the server refused to resume at its end: it may
// already be whole.
bool complete(const std::string& url, const fs::path& part, int64_t most) {
  constexpr int kStandstills = 3;  // requests in a row that brought nothing
  constexpr int kRestarts = 3;
  constexpr int kRequests = 100;  // a server may bring a byte with each
  int restarts = 0;
  std::string why;
  for (int requests = 0, standstill = 0; requests < kRequests && standstill < kStandstills;
       ++requests) {
    const int64_t before = size_or_zero(part);
    const Outcome outcome = transfer_rest(url, part, most);
    if (outcome.code == CURLE_OK) return false;
    const int64_t after = size_or_zero(part);
    if (before > 0 && outcome.status == 416) return true;
    if (before > 0 && outcome.code == CURLE_RANGE_ERROR) {
      discard(part);  // the server cannot resume, or has another file: once more from the start
      check(++restarts <= kRestarts,
            "{}: the connection broke off {} times, and the server cannot resume a download", url,
            restarts);
      continue;
    }
    if (!is_interruption(outcome.code)) {
      if (after == 0) discard(part);
      fail("{}: {}", url, outcome.message);
    }
    standstill = after > before ? 0 : standstill + 1;
    why = outcome.message;
  }
  if (size_or_zero(part) == 0) {
    discard(part);
    fail("{}: {}", url, why);
  }
  fail(
      "{}: the connection breaks off after {}; what has come is kept, run the command again to "
      "resume",
      url, human_bytes(static_cast<double>(size_or_zero(part))));
}

}  // namespace

bool can_download() {
  return true;
}

void download_file(const std::string& url, const fs::path& target, const std::string& sha256,
                   int64_t most) {
  if (target.has_parent_path()) make_folder(target.parent_path());
  const fs::path part = target.string() + ".part";
  // Without a checksum only the server can say whether what came earlier is of the same file.
  if (sha256.empty() && read_tag(part).empty()) discard(part);
  const bool resumed = size_or_zero(part) > 0;
  const bool doubtful = complete(url, part, most);
  std::string found = sha256.empty() ? "" : sha256_of_file(part);
  if ((doubtful && sha256.empty()) || (resumed && found != sha256)) {
    // What was there before belonged to another file: take it all again.
    discard(part);
    complete(url, part, most);
    found = sha256.empty() ? "" : sha256_of_file(part);
  }
  if (found != sha256) {
    const int64_t bytes = size_or_zero(part);
    discard(part);
    fail("{}: {} bytes with the SHA-256 {}; expected {}", url, with_commas(bytes), found, sha256);
  }
  fs::rename(part, target);
  fs::remove(tag_file(part));
}

#else

bool can_download() {
  return false;
}

void download_file(const std::string& url, const fs::path& target, const std::string&, int64_t) {
  fail(
      "this build of remcaps downloads nothing (libcurl was missing): get {} by other means and "
      "put it "
      "at {}",
      url, target.string());
}

#endif

std::string npm_registry() {
  std::string registry;
  for (const char* name : {"npm_config_registry", "NPM_CONFIG_REGISTRY"})
    if (const char* value = std::getenv(name); registry.empty() && value != nullptr)
      registry = value;
  if (registry.empty()) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(
        ::popen("npm config get registry 2>/dev/null", "r"), ::pclose);
    char line[1024] = "";
    if (pipe != nullptr && std::fgets(line, sizeof(line), pipe.get()) != nullptr) registry = line;
    while (!registry.empty() && (registry.back() == '\n' || registry.back() == ' '))
      registry.pop_back();
  }
  if (registry.rfind("http", 0) != 0) registry = "https://registry.npmjs.org";
  while (registry.back() == '/') registry.pop_back();
  return registry;
}

std::string npm_tarball(const std::string& package, const std::string& registry) {
  const size_t at = package.rfind('@');
  check(at != std::string::npos && at > 0, "npm package {}: expected name@version", package);
  const std::string name = package.substr(0, at);
  return fmt::format("{}/{}/-/{}-{}.tgz", registry, name, name, package.substr(at + 1));
}

}  // namespace remcaps
