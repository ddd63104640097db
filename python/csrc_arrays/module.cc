// thalweg._arrays: the communicator (include/thalweg/communicator.h) for Python, over plain memory.
// It knows nothing of PyTorch or any other framework: arrays.py says where their elements are.
//
// Arrays are (address, elements, type). The caller keeps them alive until the call returns. Errors
// raise the exceptions of errors.py.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <thalweg/communicator.h>

#include "../csrc/raise.h"

namespace py = pybind11;

namespace thalweg::python {
namespace {

using Array = std::tuple<std::uintptr_t, std::int64_t, std::string>;

constexpr double kMostSeconds = 1e9;        // of a timeout
constexpr const char* kName = "thalweg: ";  // before the errors of the communicator

// The value of an enum with this name.
template <class Enum>
Enum named(const char* what, const std::string& name, int count) {
  std::string allowed;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name == name_of(value)) return value;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name_of(value));
  }
  throw_python(Error(std::string(what) + ": '" + name + "'; " + allowed + " are allowed"));
}

TensorSpan span_of(const Array& array) {
  const auto& [address, elements, type] = array;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): Python has no pointers
  return {reinterpret_cast<void*>(address), elements, named<DType>("type", type, kDTypeCount)};
}

CallOptions options_of(const std::string& op, double timeout_s) {
  if (!(timeout_s > 0 && timeout_s <= kMostSeconds)) {
    throw_python(Error("timeout: " + std::to_string(timeout_s) +
                       "; seconds above 0, up to 1e9, are allowed"));
  }
  return {.op = named<ReduceOp>("op", op, kReduceOpCount),
          .deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::duration<double>(timeout_s))};
}

void check(const Status& status) {
  if (!status.ok()) throw_python(status.error(), kName);
}

// Calls block without the interpreter's lock. They copy the pointer to the communicator while they
// hold the lock, which guards communicator_. So the communicator lives until the last call is over,
// even if another thread closes it meanwhile, and it is destroyed without the lock.
class ArrayCommunicator {
 public:
  ArrayCommunicator(std::optional<int> rank, std::optional<int> size, const std::string& store,
                    const std::string& group, double timeout_s) {
    const CallOptions call = options_of("sum", timeout_s);
    const py::gil_scoped_release free;
    Result<Communicator> made = Communicator::create(
        {.rank = rank, .size = size, .store = store, .group = group, .timeout = call.deadline});
    if (!made.ok()) throw_python(made.error(), kName);
    communicator_ = std::make_shared<const Communicator>(*std::move(made));
  }
  ~ArrayCommunicator() { close(); }
  ArrayCommunicator(const ArrayCommunicator&) = delete;
  ArrayCommunicator& operator=(const ArrayCommunicator&) = delete;

  [[nodiscard]] int rank() const { return living()->rank(); }
  [[nodiscard]] int size() const { return living()->size(); }
  void close() {
    std::shared_ptr<const Communicator> last = std::move(communicator_);
    const py::gil_scoped_release free;
    last.reset();
  }

  void allreduce(const Array& array, const std::string& op, double timeout_s) const {
    run(op, timeout_s, [&](const Communicator& all, const CallOptions& options) {
      return all.allreduce(span_of(array), options);
    });
  }
  void broadcast(const Array& array, int root, double timeout_s) const {
    run("sum", timeout_s, [&](const Communicator& all, const CallOptions& options) {
      return all.broadcast(span_of(array), root, options);
    });
  }
  void all_gather(const Array& in, const Array& out, double timeout_s) const {
    run("sum", timeout_s, [&](const Communicator& all, const CallOptions& options) {
      return all.all_gather(span_of(in), span_of(out), options);
    });
  }
  void reduce_scatter(const Array& in, const Array& out, const std::string& op,
                      double timeout_s) const {
    run(op, timeout_s, [&](const Communicator& all, const CallOptions& options) {
      return all.reduce_scatter(span_of(in), span_of(out), options);
    });
  }
  void all_to_all(const Array& in, const Array& out, double timeout_s) const {
    run("sum", timeout_s, [&](const Communicator& all, const CallOptions& options) {
      return all.all_to_all(span_of(in), span_of(out), options);
    });
  }
  void barrier(double timeout_s) const {
    run("sum", timeout_s,
        [](const Communicator& all, const CallOptions& options) { return all.barrier(options); });
  }

 private:
  [[nodiscard]] std::shared_ptr<const Communicator> living() const {
    if (!communicator_) {
      throw_python({ErrorCode::kCancelled, "the communicator was closed"}, kName);
    }
    return communicator_;
  }

  template <class Call>
  void run(const std::string& op, double timeout_s, Call call) const {
    std::shared_ptr<const Communicator> all = living();
    const CallOptions options = options_of(op, timeout_s);
    const py::gil_scoped_release free;
    const Status status = call(*all, options);
    all.reset();
    check(status);
  }

  std::shared_ptr<const Communicator> communicator_;
};

}  // namespace

PYBIND11_MODULE(_arrays, module) {
  py::class_<ArrayCommunicator>(module, "Communicator")
      .def(py::init<std::optional<int>, std::optional<int>, std::string, std::string, double>(),
           py::arg("rank"), py::arg("size"), py::arg("store"), py::arg("group"),
           py::arg("timeout_s"))
      .def_property_readonly("rank", &ArrayCommunicator::rank)
      .def_property_readonly("size", &ArrayCommunicator::size)
      .def("close", &ArrayCommunicator::close)
      .def("allreduce", &ArrayCommunicator::allreduce)
      .def("broadcast", &ArrayCommunicator::broadcast)
      .def("all_gather", &ArrayCommunicator::all_gather)
      .def("reduce_scatter", &ArrayCommunicator::reduce_scatter)
      .def("all_to_all", &ArrayCommunicator::all_to_all)
      .def("barrier", &ArrayCommunicator::barrier);
}

}  // namespace thalweg::python
