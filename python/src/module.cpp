// The extension module _remcaps. The package `remcaps` is what users see of it.
#include <filesystem>

#include "python/src/bindings.h"
#include "remcaps/base/version.h"
#include "remcaps/recipe/resources.h"
#include "remcaps/torch/runtime.h"
#include "remcaps/training/interrupt.h"

namespace remcaps::python {
namespace {

PyObject* error_type = nullptr;
PyObject* usage_error_type = nullptr;

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const UsageError& usage) {
    PyErr_SetString(usage_error_type, usage.what());
  } catch (const Interrupted& stop) {  // what Python makes of Ctrl-C and of SIGTERM's default
    if (stop.exit_code() == 128 + SIGINT)
      PyErr_SetString(PyExc_KeyboardInterrupt, stop.what());
    else
      PyErr_SetObject(PyExc_SystemExit, py::int_(stop.exit_code()).ptr());
  } catch (const Error& failure) {
    PyErr_SetString(error_type, failure.what());
  } catch (const c10::Error& failure) {
    PyErr_SetString(PyExc_RuntimeError, error_text(failure).c_str());
  } catch (const std::filesystem::filesystem_error& failure) {
    PyErr_SetString(error_type, error_text(failure).c_str());
  }
}

PyObject* exception_type(const char* name, const char* doc, const py::object& bases) {
  PyObject* type = PyErr_NewExceptionWithDoc(name, doc, bases.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  return type;
}

void bind_errors(py::module_& module) {
  const auto borrowed = [](PyObject* type) { return py::reinterpret_borrow<py::object>(type); };
  error_type = exception_type("remcaps.Error", "Something failed; the message is one line.",
                              py::make_tuple(borrowed(PyExc_RuntimeError)));
  usage_error_type =
      exception_type("remcaps.UsageError", "An argument is wrong; the message is one line.",
                     py::make_tuple(borrowed(error_type), borrowed(PyExc_ValueError)));
  module.attr("Error") = borrowed(error_type);
  module.attr("UsageError") = borrowed(usage_error_type);
  py::register_exception_translator(translate);
}

}  // namespace

PYBIND11_MODULE(_remcaps, module) {
  bind_errors(module);
  module.attr("__version__") = kVersion;
  // The package's folder has share/remcaps/ with recipes and trained networks.
  module.def("prepare", [](const std::string& package) {
    add_resource_prefix(package);
    return prepare_embedded();
  });
  bind_adam(module);
  bind_convert(module);
  bind_data(module);
  bind_functional(module);
  bind_network(module);
  bind_parse_trees(module);
  bind_pruner(module);
  bind_training(module);
}

}  // namespace remcaps::python
