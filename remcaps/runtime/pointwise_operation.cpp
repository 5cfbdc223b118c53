#include <algorithm>
#include <cmath>
#include <functional>

#include "remcaps/base/parallel.h"
#include "remcaps/kernels/pointwise/pointwise.h"
#include "remcaps/runtime/operation.h"

namespace remcaps::runtime {
namespace {

using kernels::cpu::MapView;

// The input itself if nobody reads it again, otherwise a copy.
Value take(Operation::Input& input) {
  if (input.taken) return std::move(*input.value);
  Value copy = Value::make(input.value->shape, input.value->batch);
  kernels::cpu::copy_map(input.value->view(), copy.view());
  return copy;
}

// Changes a map in place.
class MapOperation final : public Operation {
 public:
  explicit MapOperation(std::function<void(const MapView&)> change) : change_(std::move(change)) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    Value map = take(inputs[0]);
    change_(map.view());
    return map;
  }

 private:
  std::function<void(const MapView&)> change_;
};

class AddOperation final : public Operation {
 public:
  Value run(std::vector<Input>& inputs, Pass&) const override {
    Value sum = take(inputs[0]);
    kernels::cpu::add_map(inputs[1].value->view(), sum.view());
    return sum;
  }
};

class PoolOperation final : public Operation {
 public:
  PoolOperation(int64_t kernel, int64_t stride, int64_t padding)
      : kernel_(kernel), stride_(stride), padding_(padding) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    Value out = Value::channels_last(shape, map.batch, shape.channels);
    kernels::cpu::max_pool(map.view(), kernel_, stride_, padding_, out.view());
    return out;
  }

 private:
  int64_t kernel_, stride_, padding_;
};

// How the channels of a map are read as capsules.
struct CapsuleRule {
  int64_t types = 0, dim = 0;
  bool squashes = false, type_first = true;
  kernels::SquashForm form = kernels::SquashForm::kNorm;
  float epsilon = 0;

  kernels::CapsuleMap of(const Value& map) const {
    return {.batch = map.batch,
            .types = types,
            .dim = dim,
            .places = map.shape.height * map.shape.width,
            .batch_stride = map.strides.image,
            .type_stride = dim * map.strides.channel,
            .dim_stride = map.strides.channel,
            .place_stride = map.strides.pixel};
  }
};

class SquashOperation final : public Operation {
 public:
  explicit SquashOperation(const CapsuleRule& rule) : rule_(rule) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    Value out{shape, map.batch, kernels::Buffer(map.batch * map.strides.image), map.strides};
    kernels::cpu::squash_channels(rule_.of(map), map.data.get(), rule_.epsilon, out.data.get());
    return out;
  }

 private:
  CapsuleRule rule_;
};

class CapsulesOperation final : public Operation {
 public:
  explicit CapsulesOperation(const CapsuleRule& rule) : rule_(rule) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& map = *inputs[0].value;
    const kernels::CapsuleMap from = rule_.of(map);
    Value out = Value::make(shape, map.batch);
    if (rule_.squashes && rule_.type_first && rule_.form == kernels::SquashForm::kNorm) {
      kernels::cpu::squash_map(from, map.data.get(), rule_.epsilon, out.data.get());
      return out;
    }
    parallel_for(0, map.batch, /*grain=*/1, [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) {
        float* capsules = out.data.get() + image * shape.floats();
        read(from, map.data.get() + image * from.batch_stride, capsules);
        if (rule_.squashes)
          kernels::cpu::squash_capsules(rule_.form, rule_.epsilon, shape.count, shape.dim,
                                        capsules);
      }
    });
    return out;
  }

 private:
  // The capsules of one image, not squashed.
  void read(const kernels::CapsuleMap& from, const float* map, float* to) const {
    for (int64_t i = 0; i < shape.count; ++i) {
      const int64_t type = rule_.type_first ? i / from.places : i % from.types;
      const int64_t place = rule_.type_first ? i % from.places : i / from.types;
      const float* capsule = map + type * from.type_stride + place * from.place_stride;
      for (int64_t d = 0; d < from.dim; ++d) *to++ = capsule[d * from.dim_stride];
    }
  }

  CapsuleRule rule_;
};

class ConcatenateOperation final : public Operation {
 public:
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const int64_t batch = inputs[0].value->batch;
    Value out = Value::make(shape, batch);
    float* to = out.data.get();
    for (int64_t image = 0; image < batch; ++image)
      for (const Input& input : inputs) {
        const int64_t floats = input.value->shape.floats();
        to = std::copy_n(input.value->data.get() + image * floats, floats, to);
      }
    return out;
  }
};

class LengthsOperation final : public Operation {
 public:
  explicit LengthsOperation(float epsilon) : epsilon_(epsilon) {}
  Value run(std::vector<Input>& inputs, Pass&) const override {
    const Value& poses = *inputs[0].value;
    Value out = Value::make(shape, poses.batch);
    const float* pose = poses.data.get();
    for (int64_t j = 0; j < poses.batch * poses.shape.count; ++j) {
      float sum = 0;
      for (int64_t d = 0; d < poses.shape.dim; ++d, ++pose) sum += *pose * *pose;
      out.data.get()[j] = std::sqrt(sum + epsilon_);
    }
    return out;
  }

 private:
  float epsilon_;
};

// The statistics of a batch norm as one factor and one summand per channel.
std::unique_ptr<Operation> batch_norm(const NodeReader& reader, int64_t channels) {
  const auto read = [&](const char* role) {
    return reader.weights().read(reader.node(), role, {channels});
  };
  std::vector<float> scale = read("weight"), shift = read("bias");
  const std::vector<float> mean = read("mean"), variance = read("variance");
  const float epsilon = reader.real("epsilon", 0, 1);
  for (size_t c = 0; c < scale.size(); ++c) {
    scale[c] /= std::sqrt(variance[c] + epsilon);
    reader.require(std::isfinite(scale[c]), "a variance is not above 0");
    shift[c] -= mean[c] * scale[c];
  }
  return std::make_unique<MapOperation>([scale, shift](const MapView& map) {
    kernels::cpu::scale_and_shift(map, scale.data(), shift.data());
  });
}

std::unique_ptr<Operation> instance_norm(const NodeReader& reader, int64_t channels) {
  const auto scale = reader.weights().read(reader.node(), "weight", {channels});
  const auto shift = reader.weights().read(reader.node(), "bias", {channels});
  const float epsilon = reader.real("epsilon", 1e-12, 1);
  return std::make_unique<MapOperation>([scale, shift, epsilon](const MapView& map) {
    kernels::cpu::instance_norm(map, scale.data(), shift.data(), epsilon);
  });
}

CapsuleRule capsule_rule(const NodeReader& reader, const ValueShape& map) {
  CapsuleRule rule{.types = reader.integer("types", 1, 1 << 20),
                   .dim = reader.integer("dim", 1, 1 << 20)};
  reader.require(rule.types * rule.dim == map.channels, "its types do not fit the channels");
  rule.squashes = reader.has_word("form");
  if (rule.squashes) {
    rule.form = reader.squash_form();
    rule.epsilon = reader.real("epsilon", 0, 1);
  }
  return rule;
}

std::unique_ptr<Operation> squash(const NodeReader& reader, const ValueShape& map) {
  const CapsuleRule rule = capsule_rule(reader, map);
  reader.require(rule.squashes && rule.form == kernels::SquashForm::kNorm,
                 "a map is squashed in the form norm only");
  return std::make_unique<SquashOperation>(rule);
}

std::unique_ptr<Operation> max_pool(const NodeReader& reader, const ValueShape& map,
                                    ValueShape& shape) {
  const int64_t kernel = reader.integer("kernel", 1, 1024);
  const int64_t stride = reader.integer("stride", 1, 1024);
  const int64_t padding = reader.integer("padding", 0, kernel / 2);
  reader.require(kernel <= std::min(map.height, map.width) + 2 * padding,
                 "its window is larger than the map");
  shape = ValueShape::map(map.channels, (map.height + 2 * padding - kernel) / stride + 1,
                          (map.width + 2 * padding - kernel) / stride + 1);
  auto operation = std::make_unique<PoolOperation>(kernel, stride, padding);
  operation->window = {kernel, kernel, stride, stride, padding, padding};
  return operation;
}

std::unique_ptr<Operation> capsules(const NodeReader& reader, const ValueShape& map,
                                    ValueShape& shape) {
  CapsuleRule rule = capsule_rule(reader, map);
  rule.type_first = reader.word("order", {"type-first", "type-last"}) == "type-first";
  shape = ValueShape::capsules(rule.types * map.height * map.width, rule.dim);
  auto operation = std::make_unique<CapsulesOperation>(rule);
  operation->places = {0, rule.types, map.height, map.width, rule.type_first, {}};
  return operation;
}

std::unique_ptr<Operation> concatenate(const NodeReader& reader, ValueShape& shape) {
  shape = ValueShape::capsules(0, reader.inputs()[0].dim);
  for (const ValueShape& input : reader.inputs()) {
    reader.require(!input.is_map() && input.dim == shape.dim, "expected capsules of one size");
    shape.count += input.count;
  }
  return std::make_unique<ConcatenateOperation>();
}

}  // namespace

std::unique_ptr<Operation> make_pointwise(const NodeReader& reader) {
  const std::string& op = reader.node().op;
  ValueShape shape;
  std::unique_ptr<Operation> operation;
  if (op == "concatenate") {
    operation = concatenate(reader, shape);
  } else if (op == "lengths") {
    shape = ValueShape::capsules(reader.capsules().count, 1);
    operation = std::make_unique<LengthsOperation>(reader.real("epsilon", 0, 1));
  } else if (op == "add") {
    shape = reader.inputs()[0];
    reader.require(reader.inputs().size() == 2 && shape.is_map() && reader.inputs()[1] == shape,
                   "expected two maps of one shape");
    operation = std::make_unique<AddOperation>();
  } else if (op == "max_pool") {
    operation = max_pool(reader, reader.map(), shape);
  } else if (op == "capsules") {
    operation = capsules(reader, reader.map(), shape);
  } else if (op == "batch_norm") {
    operation = batch_norm(reader, (shape = reader.map()).channels);
  } else if (op == "instance_norm") {
    operation = instance_norm(reader, (shape = reader.map()).channels);
  } else if (op == "squash") {
    operation = squash(reader, shape = reader.map());
  } else if (op == "relu") {
    shape = reader.map();
    operation =
        std::make_unique<MapOperation>([slope = reader.real("slope", 0, 1)](const MapView& map) {
          kernels::cpu::leaky_relu(map, slope);
        });
  } else {
    return nullptr;
  }
  operation->shape = reader.checked(shape);
  return operation;
}

}  // namespace remcaps::runtime
