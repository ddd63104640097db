// Errors of Thalweg as exceptions of Python: the classes of python/thalweg/errors.py. All native
// modules use it; it knows nothing of PyTorch.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include <thalweg/result.h>

namespace thalweg::python {

// The class of an error with this code and rank, which errors.py keeps alive. The caller holds
// Python's lock.
inline PyObject* exception_class(ErrorCode code, const std::optional<int>& rank) {
  const pybind11::object blamed = rank ? pybind11::object(pybind11::int_(*rank)) : pybind11::none();
  return pybind11::module_::import("thalweg.errors").attr("class_of")(name_of(code), blamed).ptr();
}

// Throws the error as an exception of Python whose text is `prefix` and the message. The caller may
// hold Python's lock or not.
[[noreturn]] inline void throw_python(const Error& error, const std::string& prefix = {}) {
  const pybind11::gil_scoped_acquire locked;
  PyErr_SetString(exception_class(error.code(), error.rank()), (prefix + error.message()).c_str());
  throw pybind11::error_already_set();
}

}  // namespace thalweg::python
