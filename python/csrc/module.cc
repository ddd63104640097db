// thalweg._C: what Python sees of the backend.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <chrono>
#include <optional>
#include <string>

#include <thalweg/version.h>

#include "backend.h"

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "thalweg needs PyTorch 2.11 or newer"
#endif

namespace py = pybind11;

namespace thalweg::python {
namespace {

Transport transport_of(const std::string& name) {
  if (name == "tcp") return Transport::kTcp;
  if (name == "dlcp") return Transport::kDlcp;
  TORCH_CHECK_VALUE(name == "atp", "transport: '", name, "'; tcp, dlcp and atp are allowed");
  return Transport::kAtp;
}

c10::intrusive_ptr<Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, double timeout_s, const std::string& transport,
                                         const std::string& scheme, const std::string& topology,
                                         double line_rate_gbps) {
  CommunicatorOptions options;
  options.transport = transport_of(transport);
  options.scheme = scheme;
  options.topology = topology;
  options.dlcp_line_rate_gbps = line_rate_gbps;
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(timeout_s));
  return Backend::make(store, rank, size, timeout, options);
}

WorkPtr reduce_gradient(Backend& backend, const at::Tensor& tensor, bool mean, double loss_bound,
                        double result_loss_bound, bool dlcp, int priority, int queue,
                        const std::optional<at::Tensor>& residual) {
  return backend.reduce_gradient(tensor, mean,
                                 {.loss_bound = loss_bound,
                                  .result_loss_bound = result_loss_bound,
                                  .dlcp = dlcp,
                                  .priority = priority,
                                  .queue = queue,
                                  .residual = residual.value_or(at::Tensor())});
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  using NoGil = py::call_guard<py::gil_scoped_release>;
  module.attr("version") = kVersion;
  module.attr("torch_version") = TORCH_VERSION;
  module.def("shutdown_all", &Backend::shutdown_all, NoGil());
  py::module_::import("torch.distributed");  // the base classes
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init(&make_backend), py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout_s"), py::kw_only(), py::arg("transport"), py::arg("scheme"),
           py::arg("topology"), py::arg("line_rate_gbps"), NoGil())
      .def("reduce_gradient", &reduce_gradient, py::arg("tensor"), py::kw_only(), py::arg("mean"),
           py::arg("loss_bound"), py::arg("result_loss_bound"), py::arg("dlcp"),
           py::arg("priority"), py::arg("queue"), py::arg("residual") = py::none(), NoGil())
      .def("shutdown", &Backend::shutdown, NoGil())
      // PyTorch calls it on ranks outside of a new group where a device is bound: they have
      // nothing to do with it.
      .def("perform_nocolor_split", [](Backend& /*backend*/, const c10::Device& /*device*/) {});
}

}  // namespace thalweg::python
