#include "remcaps/data/formats/mat5.h"

#include <fmt/ranges.h>

#include <mutex>

#include "remcaps/base/error.h"
#include "remcaps/data/formats/mat5_structure.h"

#if defined(REMCAPS_HAVE_MATIO)
#include <matio.h>
#endif

namespace remcaps {
namespace fs = std::filesystem;

#if defined(REMCAPS_HAVE_MATIO)
namespace {

// libmatio reports through a global function; the last message is kept for the error.
std::mutex matio_mutex;
std::string matio_message;

void keep_message(int level, char* message) {
  if ((level & (MATIO_LOG_LEVEL_CRITICAL | MATIO_LOG_LEVEL_ERROR)) != 0) matio_message = message;
}

template <typename T>
torch::Tensor converted(const matvar_t& array, const std::vector<int64_t>& shape) {
  constexpr auto type = std::is_integral_v<T> ? torch::kInt64 : torch::kFloat64;
  torch::Tensor tensor = torch::empty(shape, type);
  const auto* from = static_cast<const T*>(array.data);
  if constexpr (std::is_integral_v<T>)
    std::copy(from, from + tensor.numel(), tensor.data_ptr<int64_t>());
  else
    std::copy(from, from + tensor.numel(), tensor.data_ptr<double>());
  return tensor;
}

torch::Tensor to_tensor(const std::shared_ptr<void>& owner, const matvar_t& array,
                        const std::string& what) {
  check(array.data != nullptr && array.isComplex == 0, "{}: holds no real numbers", what);
  const std::vector<int64_t> shape(std::make_reverse_iterator(array.dims + array.rank),
                                   std::make_reverse_iterator(array.dims));
  size_t bytes = static_cast<size_t>(std::max(array.data_size, 0));
  for (const int64_t extent : shape)
    check(extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes),
          "{}: has the shape [{}]; expected a sensible size", what, fmt::join(shape, ", "));
  check(bytes <= array.nbytes, "{}: {} bytes; its shape [{}] needs {}", what, array.nbytes,
        fmt::join(shape, ", "), bytes);
  switch (array.class_type) {
    case MAT_C_UINT8:  // no copy: affNIST's images are half a gigabyte
      return torch::from_blob(
          array.data, shape, [owner](void*) {}, torch::kUInt8);
    case MAT_C_INT8:
      return converted<int8_t>(array, shape);
    case MAT_C_INT16:
      return converted<int16_t>(array, shape);
    case MAT_C_UINT16:
      return converted<uint16_t>(array, shape);
    case MAT_C_INT32:
      return converted<int32_t>(array, shape);
    case MAT_C_UINT32:
      return converted<uint32_t>(array, shape);
    case MAT_C_INT64:
      return converted<int64_t>(array, shape);
    case MAT_C_SINGLE:
      return converted<float>(array, shape);
    case MAT_C_DOUBLE:
      return converted<double>(array, shape);
    default:
      fail("{}: MATLAB class {}; expected a numeric array", what,
           static_cast<int>(array.class_type));
  }
}

}  // namespace

bool can_read_mat() {
  return true;
}

MatFile::MatFile(const fs::path& path) : path_(path) {
  check_mat_structure(path);
}

torch::Tensor MatFile::array(const std::string& variable, const std::string& field) {
  const std::lock_guard lock(matio_mutex);
  if (contents_ == nullptr || variable_ != variable) {
    matio_message.clear();
    Mat_LogInitFunc("remcaps", keep_message);
    const std::unique_ptr<mat_t, int (*)(mat_t*)> file(Mat_Open(path_.c_str(), MAT_ACC_RDONLY),
                                                       Mat_Close);
    check(file != nullptr, "{}: cannot read: {}", path_.string(), matio_message);
    contents_ = std::shared_ptr<matvar_t>(Mat_VarRead(file.get(), variable.c_str()), Mat_VarFree);
    variable_ = variable;
    check(matio_message.empty(), "{}: damaged: {}", path_.string(), matio_message);
    check(contents_ != nullptr, "{}: has no variable {}", path_.string(), variable);
  }
  auto* array = static_cast<matvar_t*>(contents_.get());
  std::string what = fmt::format("{}: variable {}", path_.string(), variable);
  if (!field.empty()) {
    check(array->class_type == MAT_C_STRUCT, "{} is no structure; expected one with the field {}",
          what, field);
    array = Mat_VarGetStructFieldByName(array, field.c_str(), 0);
    check(array != nullptr, "{} has no field {}", what, field);
    what += "." + field;
  }
  return to_tensor(contents_, *array, what);
}

#else

bool can_read_mat() {
  return false;
}

MatFile::MatFile(const fs::path& path) : path_(path) {
  fail(
      "{}: this build of remcaps reads no MAT files (libmatio was missing); rebuild with "
      "libmatio-dev, or use a file that `remcaps data prepare` wrote on another machine",
      path.string());
}

torch::Tensor MatFile::array(const std::string&, const std::string&) {
  return {};  // never reached: there is no MatFile without libmatio
}

#endif

}  // namespace remcaps
