// thalweg._ps: a worker's connection to a parameter server (thalweg/parameter_client.h) for Python.
// It knows nothing of PyTorch: values are contiguous buffers of float32. Errors raise the
// exceptions of errors.py.
#include <pybind11/pybind11.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include <thalweg/parameter_client.h>

#include "../csrc/raise.h"

namespace py = pybind11;

namespace thalweg::python {
namespace {

constexpr double kMostSeconds = 1e9;  // of a timeout

// Keeps the buffer alive while its elements are used.
class Floats {
 public:
  Floats(const py::buffer& values, bool writable) : info_(values.request(writable)) {
    if (info_.format != py::format_descriptor<float>::format() || info_.ndim != 1 ||
        (info_.size > 1 && info_.strides[0] != sizeof(float))) {
      throw_python(Error("values: one contiguous dimension of float32 is allowed"));
    }
  }
  [[nodiscard]] std::span<float> span() const {
    return {static_cast<float*>(info_.ptr), static_cast<std::size_t>(info_.size)};
  }

 private:
  py::buffer_info info_;
};

class Client {
 public:
  Client(const std::string& server, std::uint32_t worker, double timeout_s)
      : client_(connected(server, worker, timeout_s)) {}

  void init(const std::string& name, const py::buffer& values) {
    const Floats floats(values, true);
    const py::gil_scoped_release without_gil;
    if (const Status status = client_.init(name, floats.span()); !status.ok()) {
      throw_python(status.error());
    }
  }
  void push(const std::string& name, const py::buffer& gradient) {
    const Floats floats(gradient, false);
    const py::gil_scoped_release without_gil;
    if (const Status status = client_.push(name, floats.span()); !status.ok()) {
      throw_python(status.error());
    }
  }
  std::uint64_t pull(const std::string& name, const py::buffer& values) {
    const Floats floats(values, true);
    const py::gil_scoped_release without_gil;
    const Result<std::uint64_t> steps = client_.pull(name, floats.span());
    if (!steps.ok()) throw_python(steps.error());
    return *steps;
  }

 private:
  static ParameterClient connected(const std::string& server, std::uint32_t worker,
                                   double timeout_s) {
    if (!(timeout_s > 0 && timeout_s <= kMostSeconds)) {
      throw_python(Error("timeout_s: seconds above 0, up to 1e9, are allowed"));
    }
    const py::gil_scoped_release without_gil;
    Result<ParameterClient> made = ParameterClient::connect(
        {.server = server,
         .worker = worker,
         .timeout = std::chrono::nanoseconds(std::llround(timeout_s * 1e9))});
    if (!made.ok()) throw_python(made.error());
    return *std::move(made);
  }

  ParameterClient client_;
};

}  // namespace

PYBIND11_MODULE(_ps, module) {
  py::class_<Client>(module, "Client")
      .def(py::init<const std::string&, std::uint32_t, double>(), py::arg("server"),
           py::arg("worker"), py::arg("timeout_s") = 60.0)
      .def("init", &Client::init, py::arg("name"), py::arg("values"))
      .def("push", &Client::push, py::arg("name"), py::arg("gradient"))
      .def("pull", &Client::pull, py::arg("name"), py::arg("values"));
}

}  // namespace thalweg::python
