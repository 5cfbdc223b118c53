#include "remcaps/base/json.h"

#include <nlohmann/json.hpp>

namespace remcaps {

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

int64_t whole_number(const nlohmann::json& value) {
  return value.get_ref<const nlohmann::json::number_integer_t&>();
}

std::vector<int64_t> whole_numbers(const nlohmann::json& list) {
  std::vector<int64_t> numbers;
  for (const auto& value : list.get_ref<const nlohmann::json::array_t&>())
    numbers.push_back(whole_number(value));
  return numbers;
}

}  // namespace remcaps
