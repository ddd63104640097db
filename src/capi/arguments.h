// Checks the arguments of the C API and turns them into those of the C++ API.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <thalweg/communicator.h>
#include <thalweg/thalweg.h>

namespace thalweg::capi {

Result<const Communicator*> communicator_of(const thalweg_communicator* communicator);
Result<const Operation*> operation_of(const thalweg_operation* operation);
// An error if the argument of this name was not given, but a null pointer.
Status needed(const char* name, bool given);
// An error if the options of this name were not set by their init function.
Status initialized(const char* name, std::size_t found, std::size_t expected);
// Null is the same as "".
std::string text_of(const char* text);

// Null options: the defaults.
Result<CommunicatorOptions> options_of(const thalweg_options* options);
Result<CallOptions> call_of(const thalweg_call_options* options);
// The same with a reduction.
Result<CallOptions> call_of(const thalweg_call_options* options, int op);

// `parts` times `elements` of a type.
Result<TensorSpan> span_of(void* data, std::int64_t elements, int type, int parts = 1);
Result<TensorView> view_of(const void* data, std::int64_t elements, int type, int parts = 1);

Result<std::chrono::nanoseconds> duration_of(const char* name, double seconds);

}  // namespace thalweg::capi
