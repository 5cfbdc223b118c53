#include "remcaps/torch/process_group.h"

#include <c10/util/Logging.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "remcaps/torch/runtime.h"

#if defined(REMCAPS_HAVE_GLOO)
#ifndef USE_C10D_GLOO  // Debian's libtorch defines it for its users
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#if defined(REMCAPS_HAVE_GLOO) || defined(REMCAPS_HAVE_NCCL)
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "remcaps/torch/process_group_backend.h"
#endif

namespace remcaps {

bool has_process_groups([[maybe_unused]] torch::DeviceType device) {
#if defined(REMCAPS_HAVE_GLOO)
  if (device == torch::kCPU) return true;
#endif
#if defined(REMCAPS_HAVE_NCCL)
  if (device == torch::kCUDA) return true;
#endif
  return false;
}

#if defined(REMCAPS_HAVE_GLOO) || defined(REMCAPS_HAVE_NCCL)

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using GroupClock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// "rank 2 of 3", "ranks 1 and 2 of 4", "ranks 1, 2 and 3 of 8".
std::string ranks_text(const std::vector<int64_t>& ranks, int64_t size) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (k > 0) text += k + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[k]);
  }
  return fmt::format("{} of {}", text, size);
}

// c10d tells its log what it throws, too.
void silence_log() {
#ifdef C10_USE_GLOG
  FLAGS_minloglevel = google::GLOG_FATAL;
#endif
}

StorePtr open_store(const Launch& launch, seconds timeout) {
  silence_log();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.agent;
  options.waitWorkers = false;
  options.timeout = timeout;
  StorePtr store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
  } catch (const std::exception& error) {
    if (options.isServer)
      fail("rank 0 cannot listen at port {}: {}", launch.port, error_text(error));
    fail("rank 0 of {} does not answer at {}, port {} (waited {} s)", launch.size, launch.address,
         launch.port, timeout.count());
  }
  if (!launch.agent) return store;
  return c10::make_intrusive<c10d::PrefixStore>(*launch.agent, store);
}

#if defined(REMCAPS_HAVE_GLOO)
// The network interface is the user's choice, as in PyTorch, else that of this machine's name.
std::shared_ptr<::gloo::transport::Device> gloo_device(const Launch& launch) {
  using Group = c10d::ProcessGroupGloo;
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"))
    return Group::createDeviceForInterface(name);
  if (launch.address == "localhost" || launch.address.rfind("127.", 0) == 0)
    return Group::createDeviceForHostname("127.0.0.1");
  return Group::createDefaultDevice();
}
#endif

std::unique_ptr<ProcessGroupBackend> make_backend(const StorePtr& store,
                                                  [[maybe_unused]] const Launch& launch,
                                                  torch::Device device, seconds timeout) {
#if defined(REMCAPS_HAVE_NCCL)
  if (device.is_cuda()) return make_nccl_backend(store, launch.rank, launch.size, timeout);
#endif
#if defined(REMCAPS_HAVE_GLOO)
  if (device.is_cpu()) {
    using Group = c10d::ProcessGroupGloo;
    const auto options = Group::Options::create(timeout);
    options->devices.push_back(gloo_device(launch));
    return std::make_unique<C10dBackend<Group>>(c10::make_intrusive<Group>(
        store, static_cast<int>(launch.rank), static_cast<int>(launch.size), options));
  }
#endif
  fail("this build has no process groups for {}", device.str());
}

}  // namespace

class ProcessGroup::Impl {
 public:
  Impl(const Launch& launch, torch::Device device, seconds timeout)
      : device(device), launch_(launch), timeout_(timeout) {
    store_ = open_store(launch, timeout);
    store_->setTimeout(timeout);
    const std::vector<int64_t> absent = roll_call("join", timeout);
    if (!absent.empty())
      fail("{} did not come (waited {} s)", ranks_text(absent, launch.size), timeout.count());
    backend = make_backend(store_, launch, device, timeout);
  }

  // Every process that can calls this. Rank 0 waits for the others and tells all of them the ranks
  // that did not come.
  std::vector<int64_t> roll_call(const std::string& name, milliseconds wait) {
    return launch_.rank == 0 ? count_present(name, wait) : report_presence(name, wait);
  }

  // How long a process that lives may take until it notices that another is lost: it computes on
  // until its next collective operation.
  milliseconds patience() const {
    constexpr seconds kLeast(3);
    return std::min<milliseconds>(timeout_, kLeast + longest_pause_);
  }

  void note_begin() {
    const auto pause = std::chrono::duration_cast<milliseconds>(GroupClock::now() - ended_);
    longest_pause_ = std::max(longest_pause_, pause);
  }
  void note_end() { ended_ = GroupClock::now(); }

  std::unique_ptr<ProcessGroupBackend> backend;
  const torch::Device device;

 private:
  std::vector<int64_t> count_present(const std::string& name, milliseconds wait) {
    std::vector<int64_t> missing(launch_.size - 1);
    std::iota(missing.begin(), missing.end(), 1);
    const auto deadline = GroupClock::now() + wait;
    do {
      std::erase_if(missing,
                    [&](int64_t rank) { return store_->check({name + std::to_string(rank)}); });
      if (missing.empty()) break;
      std::this_thread::sleep_for(milliseconds(20));
    } while (GroupClock::now() < deadline);
    store_->set(name, bytes_of(fmt::format("{}", fmt::join(missing, ","))));
    if (missing.empty()) return missing;
    // The store ends with this process: the others should have read the answer by then.
    const int64_t readers = launch_.size - 1 - static_cast<int64_t>(missing.size());
    for (int k = 0; k < 100 && store_->add(name + "read", 0) < readers; ++k)
      std::this_thread::sleep_for(milliseconds(20));
    return missing;
  }

  std::vector<int64_t> report_presence(const std::string& name, milliseconds wait) {
    std::vector<int64_t> missing;
    try {
      store_->set(name + std::to_string(launch_.rank), bytes_of("here"));
      store_->wait({name}, wait + timeout_);  // rank 0 may have begun to wait later
      const std::vector<uint8_t> answer = store_->get(name);
      int64_t number = 0;
      for (const uint8_t letter : answer) {
        if (letter != ',') {
          number = 10 * number + (letter - '0');
          continue;
        }
        missing.push_back(number);
        number = 0;
      }
      if (!answer.empty()) missing.push_back(number);
      store_->add(name + "read", 1);
    } catch (const std::exception&) {  // the store has ended with rank 0, or does not answer
      return {0};
    }
    return missing;
  }

  Launch launch_;
  seconds timeout_;
  StorePtr store_;
  GroupClock::time_point ended_ = GroupClock::now();
  milliseconds longest_pause_{0};
};

ProcessGroup::ProcessGroup(const Launch& launch, torch::Device device, seconds timeout)
    : launch_(launch) {
  check(has_process_groups(device.type()),
        "a launcher started {} processes, but this build has no {}; {}", launch.size,
        device.is_cuda() ? "NCCL, which GPUs need" : "Gloo, which CPUs need",
        "--distributed off trains in each process alone");
  impl_ = std::make_unique<Impl>(launch, device, timeout);
}

ProcessGroup::~ProcessGroup() = default;

template <typename Work>
void ProcessGroup::run(const Work& work) {
  check(impl_->backend != nullptr, "the processes of the run have lost each other before");
  impl_->note_begin();
  try {
    work();
  } catch (const std::exception& error) {
    lose(error_text(error));
  }
  impl_->note_end();
}

void ProcessGroup::lose(const std::string& reason) {
  // Closes the connections: the others notice too, instead of waiting for this process.
  impl_->backend.reset();
  const std::vector<int64_t> missing = impl_->roll_call("lost", impl_->patience());
  if (missing.empty())
    throw PeerLost(fmt::format("the processes of the run have lost each other: {}", reason), false);
  throw PeerLost(fmt::format("{} {} gone: ended, killed or out of reach",
                             ranks_text(missing, size()), missing.size() == 1 ? "is" : "are"),
                 missing.front() == 0);
}

void ProcessGroup::all_reduce_sum(torch::Tensor tensor) {
  run([&] {
    const torch::Tensor there = tensor.to(impl_->device);
    impl_->backend->all_reduce_sum(there);
    if (!there.is_same(tensor)) tensor.copy_(there);
  });
}

std::vector<torch::Tensor> ProcessGroup::all_reduce_sums(std::vector<torch::Tensor> tensors) {
  std::vector<torch::Tensor> sums;
  run([&] { sums = impl_->backend->all_reduce_sums(std::move(tensors)); });
  return sums;
}

void ProcessGroup::broadcast(torch::Tensor tensor) {
  run([&] {
    const torch::Tensor there = tensor.to(impl_->device);
    impl_->backend->broadcast(there);
    if (!there.is_same(tensor)) tensor.copy_(there);
  });
}

#else

class ProcessGroup::Impl {};

ProcessGroup::ProcessGroup(const Launch& launch, torch::Device, std::chrono::seconds)
    : launch_(launch) {
  fail(
      "a launcher started {} processes, but this build trains in one (it was made without Gloo); "
      "--distributed off trains in each process alone",
      launch.size);
}

ProcessGroup::~ProcessGroup() = default;
void ProcessGroup::all_reduce_sum(torch::Tensor) {}
std::vector<torch::Tensor> ProcessGroup::all_reduce_sums(std::vector<torch::Tensor> tensors) {
  return tensors;
}
void ProcessGroup::broadcast(torch::Tensor) {}

#endif

void ProcessGroup::barrier() {
  all_reduce_sum(torch::zeros({1}));
}

std::vector<std::string> ProcessGroup::gather(const std::string& bytes) {
  // The sum of parts that do not overlap.
  torch::Tensor lengths = torch::zeros({size()}, torch::kInt64);
  lengths[rank()] = static_cast<int64_t>(bytes.size());
  all_reduce_sum(lengths);
  torch::Tensor all = torch::zeros({lengths.sum().item<int64_t>()}, torch::kUInt8);
  const int64_t* length = lengths.data_ptr<int64_t>();
  char* begin = reinterpret_cast<char*>(all.data_ptr<uint8_t>());
  if (!bytes.empty())
    std::memcpy(begin + std::accumulate(length, length + rank(), int64_t{0}), bytes.data(),
                bytes.size());
  if (all.numel() > 0) all_reduce_sum(all);
  std::vector<std::string> parts;
  for (int64_t k = 0; k < size(); begin += length[k], ++k) parts.emplace_back(begin, length[k]);
  return parts;
}

std::string ProcessGroup::broadcast_text(const std::string& text) {
  return gather(rank() == 0 ? text : "").front();
}

}  // namespace remcaps
