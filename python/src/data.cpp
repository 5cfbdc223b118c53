// Data sets as tensors.
#include "remcaps/data/dataset.h"

#include "python/src/bindings.h"

namespace remcaps::python {

void bind_data(py::module_& module) {
  py::class_<Dataset>(module, "Dataset")
      .def_readonly("images", &Dataset::images)
      .def_readonly("labels", &Dataset::labels);
  py::class_<DataSplits>(module, "DataSplits")
      .def_readonly("name", &DataSplits::name)
      .def_readonly("class_names", &DataSplits::class_names)
      .def("split_names", &DataSplits::split_names)
      .def("split", &DataSplits::split, py::return_value_policy::copy);
  module.def("dataset_names", &dataset_names);
  module.def(
      "load_dataset",
      [](const std::string& name, const std::string& data, const std::string& folder,
         int64_t validation) {
        if (validation < -1)
          throw UsageError(fmt::format("validation: {}; expected -1 or more", validation));
        DatasetOptions options;
        options.name = name;
        options.folder = folder;
        options.validation = validation;
        return load_dataset(options, data_root(data));
      },
      WithoutGil());
}

}  // namespace remcaps::python
