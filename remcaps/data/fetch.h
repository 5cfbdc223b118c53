// Getting a data set: download, check, unpack, put in place.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "remcaps/data/descriptor.h"

namespace remcaps {

/// Fetches a data set into DATA/<first home>. Providers are tried in order; what arrives is checked
/// by the SHA-256 of its contents, wherever it came from. Everything is unpacked under DATA/.fetch
/// and moved into place when it is whole: a failure leaves nothing there but downloads to be
/// resumed. `say` gets a line for every step worth telling. Returns the folder the files are in.
///
/// Error names every address that failed, or says how to get a set that cannot be fetched.
std::filesystem::path fetch_dataset(const DatasetDescriptor& dataset,
                                    const std::filesystem::path& data_root,
                                    const std::function<void(const std::string&)>& say);

}  // namespace remcaps
