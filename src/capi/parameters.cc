// The parameter server's client in the C API.
#include <cstddef>
#include <span>
#include <utility>

#include <thalweg/parameter_client.h>
#include <thalweg/thalweg_endpoint.h>

#include "capi/arguments.h"
#include "capi/guarded.h"

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): names of the C API
struct thalweg_parameters {
  thalweg::ParameterClient client;
};
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

namespace thalweg::capi {
namespace {

// Runs `call` with the client and the floats, if all is given.
template <class Float, class Call>
int with_values(thalweg_parameters* parameters, const char* name, Float* values, int64_t elements,
                Call call) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed("parameters", parameters != nullptr));
    THALWEG_TRY_STATUS(needed("name", name != nullptr));
    THALWEG_TRY(const TensorView checked, view_of(values, elements, THALWEG_FLOAT32));
    THALWEG_TRY_STATUS(needed("values", values != nullptr || elements == 0));
    return call(parameters->client,
                std::span<Float>(values, static_cast<std::size_t>(checked.elements)));
  });
}

}  // namespace
}  // namespace thalweg::capi

using namespace thalweg;
using namespace thalweg::capi;

int thalweg_parameters_connect(const char* server, uint32_t worker, double timeout_s,
                               thalweg_parameters** made) {
  return guarded([&]() -> Status {
    THALWEG_TRY_STATUS(needed("made", made != nullptr));
    *made = nullptr;
    THALWEG_TRY(const std::chrono::nanoseconds timeout, duration_of("timeout_s", timeout_s));
    auto client =
        ParameterClient::connect({.server = text_of(server), .worker = worker, .timeout = timeout});
    if (!client.ok()) return client.error();
    *made = new thalweg_parameters{.client = std::move(*client)};
    return ok_status();
  });
}

int thalweg_parameters_init(thalweg_parameters* parameters, const char* name, float* values,
                            int64_t elements) {
  return with_values(parameters, name, values, elements,
                     [&](ParameterClient& client, std::span<float> all) -> Status {
                       return client.init(name, all);
                     });
}

int thalweg_parameters_push(thalweg_parameters* parameters, const char* name, const float* gradient,
                            int64_t elements) {
  return with_values(parameters, name, gradient, elements,
                     [&](ParameterClient& client, std::span<const float> all) -> Status {
                       return client.push(name, all);
                     });
}

int thalweg_parameters_pull(thalweg_parameters* parameters, const char* name, float* values,
                            int64_t elements, uint64_t* steps) {
  return with_values(parameters, name, values, elements,
                     [&](ParameterClient& client, std::span<float> all) -> Status {
                       THALWEG_TRY(const std::uint64_t found, client.pull(name, all));
                       if (steps != nullptr) *steps = found;
                       return ok_status();
                     });
}

void thalweg_parameters_free(thalweg_parameters* parameters) { delete parameters; }
