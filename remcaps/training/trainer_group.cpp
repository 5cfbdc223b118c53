// What the processes of a run agree on.
#include "remcaps/base/error.h"
#include "remcaps/models/stacked_capsnet.h"
#include "remcaps/training/interrupt.h"
#include "remcaps/training/trainer.h"

namespace remcaps {

void Trainer::check_can_be_divided() const {
  const auto* stacked = dynamic_cast<const StackedCapsNet*>(model_.get());
  check(stacked == nullptr || stacked->divisible(),
        "{}: the routing of {} depends on the whole batch, which cannot be divided over {} "
        "processes; --distributed off trains in each process alone",
        recipe_.name, model_->name(), group_->size());
  check(recipe_.train.batch >= group_->size(), "{}: train.batch is {}; expected at least {}, {}",
        recipe_.name, recipe_.train.batch, group_->size(), "the number of processes");
}

void Trainer::check_same_run() {
  if (group_ == nullptr) return;
  const std::string own = fmt::format("{}\n{} {} {}", recipe_.to_text(), train_->size(),
                                      validation_->size(), test_ ? test_->size() : 0);
  check(own == group_->broadcast_text(own),
        "rank {} has another recipe or other data than rank 0; expected the same", group_->rank());
}

void Trainer::share_weights() {
  if (group_ == nullptr) return;
  const torch::NoGradGuard no_grad;
  for (const auto& list : {model_->parameters(), model_->buffers()})
    for (const Tensor& tensor : list) group_->broadcast(tensor);
}

void Trainer::check_same_masks() {
  if (group_ == nullptr) return;
  // FNV-1a over the bytes of all masks.
  uint64_t hash = 14695981039346656037U;
  for (const auto& [name, tensor] : step_->pruner().state()) {
    if (tensor.scalar_type() != torch::kUInt8) continue;
    const Tensor mask = tensor.cpu().contiguous();
    const uint8_t* bytes = mask.data_ptr<uint8_t>();
    for (int64_t k = 0; k < mask.numel(); ++k) hash = (hash ^ bytes[k]) * 1099511628211U;
  }
  const std::vector<std::string> all = group_->gather(std::to_string(hash));
  for (size_t rank = 1; rank < all.size(); ++rank)
    check(
        all[rank] == all[0],
        "after epoch {}, rank {} has pruned other weights than rank 0; the run cannot go on; last "
        "good checkpoint: {} ({})",
        progress_.epoch + 1, rank, folder_.state().string(), last_saved_);
}

void Trainer::look_for_stop() {
  // On a GPU the steps are only queued here, and looking would wait for them.
  constexpr int64_t kStepsBetweenLooks = 32;
  if (group_ != nullptr && device_.is_cuda() && progress_.position % kStepsBetweenLooks != 0)
    return;
  stop_signal_ = InterruptGuard::signal();
  out_of_time_ = limit_seconds_ > 0 && seconds() >= limit_seconds_;
  if (group_ == nullptr) return;
  // How many processes got each signal, and whether rank 0 is out of time.
  const Tensor votes =
      torch::tensor({stop_signal_ == SIGINT ? 1 : 0, stop_signal_ == SIGTERM ? 1 : 0,
                     out_of_time_ && writes() ? 1 : 0},
                    torch::kInt64);
  group_->all_reduce_sum(votes);
  const int64_t* vote = votes.data_ptr<int64_t>();
  stop_signal_ = vote[0] > 0 ? SIGINT : vote[1] > 0 ? SIGTERM : 0;
  out_of_time_ = vote[2] > 0;
}

}  // namespace remcaps
