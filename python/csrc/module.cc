// thalweg._C: the backend for Python.
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <thalweg/version.h>

#include "backend.h"
#include "net/job/timeline.h"
#include "versions.h"

namespace py = pybind11;

namespace thalweg::python {
namespace {

Transport transport_of(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, Transport>, 4> kTransports{
      std::pair{"tcp", Transport::kTcp},
      {"dlcp", Transport::kDlcp},
      {"atp", Transport::kAtp},
      {"auto", Transport::kAuto}};
  for (const auto& [known, transport] : kTransports) {
    if (name == known) return transport;
  }
  TORCH_CHECK_VALUE(false, "transport: '", name, "'; tcp, dlcp, atp and auto are allowed");
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

CommunicatorOptions options_of(const std::string& transport, const std::string& scheme,
                               const std::string& topology, double line_rate_gbps,
                               const std::string& switch_address) {
  CommunicatorOptions options;
  options.transport = transport_of(transport);
  options.scheme = scheme;
  options.topology = topology;
  options.dlcp_line_rate_gbps = line_rate_gbps;
  options.atp_switch = switch_address;
  return options;
}

c10::intrusive_ptr<Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, double timeout_s, const std::string& transport,
                                         const std::string& scheme, const std::string& topology,
                                         double line_rate_gbps, const std::string& switch_address) {
  return Backend::make(store, rank, size, milliseconds(timeout_s),
                       options_of(transport, scheme, topology, line_rate_gbps, switch_address));
}

c10::intrusive_ptr<Backend> make_backend_at(const std::shared_ptr<MeetingPlace>& place,
                                            const std::vector<std::string>& places, int rank,
                                            const std::string& group, double timeout_s,
                                            const std::string& transport, const std::string& scheme,
                                            const std::string& topology, double line_rate_gbps,
                                            const std::string& switch_address) {
  CommunicatorOptions options =
      options_of(transport, scheme, topology, line_rate_gbps, switch_address);
  options.place = place;
  options.places = places;
  options.group = group;
  return Backend::make_at(rank, milliseconds(timeout_s), options);
}

std::shared_ptr<MeetingPlace> open_place(const std::string& towards) {
  Result<std::shared_ptr<MeetingPlace>> place = MeetingPlace::open(towards);
  if (!place.ok()) raise(place.error());
  return *std::move(place);
}

std::string address_of_place(MeetingPlace& place) {
  Result<std::string> address = place.address();
  if (!address.ok()) raise(address.error());
  return *std::move(address);
}

// An exception of Python, or None.
py::object error_of(const Backend& backend) {
  std::optional<Error> error;
  {
    const py::gil_scoped_release without_gil;
    error = backend.broken();
  }
  if (!error) return py::none();
  const py::handle type(exception_class(error->code(), error->rank()));
  return type("thalweg: the process group has aborted: " + error->message());
}

py::list auto_choices(const Backend& backend) {
  std::vector<AutoDecision> decisions;
  {
    const py::gil_scoped_release release;
    decisions = backend.auto_choices();
  }
  py::list list;
  for (const AutoDecision& one : decisions) {
    py::dict fields;
    fields["kind"] = one.kind;
    fields["decided"] = one.decided;
    fields["chosen"] = one.chosen;
    fields["why"] = one.why;
    fields["calls"] = one.calls;
    fields["trials"] = one.trials;
    fields["trials_ms"] = one.trials_ms;
    fields["extra_ms"] = one.extra_ms;
    list.append(fields);
  }
  return list;
}

// PhaseTotals, by name.
py::dict staging_phases() {
  const PhaseTotals totals = phase_totals();
  py::dict fields;
  fields["parts"] = totals.parts;
  fields["enqueue_ns"] = totals.enqueue_ns;
  fields["arrive_ns"] = totals.arrive_ns;
  fields["start_ns"] = totals.start_ns;
  fields["operation_ns"] = totals.operation_ns;
  fields["back_ns"] = totals.back_ns;
  return fields;
}

// Notes in the timeline of this process, if it has one, that an optimizer has done its step.
void end_iteration() {
  if (const auto timeline = net::Timeline::existing()) timeline->end_iteration();
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
  module.def("staging_phases", &staging_phases);
  module.def("end_iteration", &end_iteration, NoGil());
  py::module_::import("torch.distributed");  // the base classes
  // PyTorch translates what passes through its own code; this is for calls that pybind11 makes.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (BackendError& error) {
      PyErr_SetString(error.python_type(), error.what());
    }
  });
  py::class_<MeetingPlace, std::shared_ptr<MeetingPlace>>(module, "MeetingPlace")
      .def(py::init(&open_place), py::arg("towards"), NoGil())
      .def("address", &address_of_place, NoGil());
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init(&make_backend), py::arg("store"), py::arg("rank"), py::arg("size"),
           py::arg("timeout_s"), py::kw_only(), py::arg("transport"), py::arg("scheme"),
           py::arg("topology"), py::arg("line_rate_gbps"), py::arg("switch_address"), NoGil())
      .def_static("at_places", &make_backend_at, py::arg("place"), py::arg("places"),
                  py::arg("rank"), py::kw_only(), py::arg("group"), py::arg("timeout_s"),
                  py::arg("transport"), py::arg("scheme"), py::arg("topology"),
                  py::arg("line_rate_gbps"), py::arg("switch_address"), NoGil())
      .def("error", &error_of)
      .def_property_readonly("has_switch", &Backend::has_switch)
      .def("auto_choices", &auto_choices)
      .def("reduce_gradient", &reduce_gradient, py::arg("tensor"), py::kw_only(), py::arg("mean"),
           py::arg("loss_bound"), py::arg("result_loss_bound"), py::arg("dlcp"),
           py::arg("priority"), py::arg("queue"), py::arg("residual") = py::none(), NoGil())
      .def("shutdown", &Backend::shutdown, NoGil())
      .def("abort", &Backend::abort, NoGil())
      .def("set_timeout",
           [](Backend& backend, double seconds) { backend.setTimeout(milliseconds(seconds)); })
      // PyTorch calls it on ranks outside of a new group where a device is bound. They have nothing
      // to do for that group.
      .def("perform_nocolor_split", [](Backend& /*backend*/, const c10::Device& /*device*/) {});
}

}  // namespace thalweg::python
