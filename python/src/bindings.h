// The parts of the extension module, one file each.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/names.h"
#include "remcaps/parse_tree/quantizer.h"

namespace remcaps::python {

namespace py = pybind11;
using torch::Tensor;

/// To be called now and then in long work: Ctrl-C is an exception.
inline void stop_if_interrupted() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// Long work runs without the interpreter's lock, so that other Python threads go on.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

void bind_adam(py::module_& module);
void bind_convert(py::module_& module);
void bind_data(py::module_& module);
void bind_functional(py::module_& module);
void bind_network(py::module_& module);
void bind_parse_trees(py::module_& module);
void bind_pruner(py::module_& module);
void bind_training(py::module_& module);

/// The enumerator whose name is `value`; `names` are in the order of the enum. UsageError suggests
/// the nearest name.
template <typename Enum>
Enum choice(const char* option, const std::string& value, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end())
    throw UsageError(
        fmt::format("{}: unknown value {}{}", option, value, suggestion(value, names)));
  return static_cast<Enum>(found - names.begin());
}

/// Quantizer::uniform, for a K that a user gave.
inline Quantizer quantizer_of(int64_t levels) {
  if (levels < 2 || levels > 256)
    throw UsageError(fmt::format("levels: {}; expected 2 to 256", levels));
  return Quantizer::uniform(levels);
}

}  // namespace remcaps::python
