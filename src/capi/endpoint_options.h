// Checks the options of endpoints and transfers in the C API and turns them into those of the C++
// API. Null options are the defaults.
#pragma once

#include <thalweg/endpoint.h>
#include <thalweg/thalweg_endpoint.h>

namespace thalweg::capi {

Result<EndpointOptions> endpoint_options_of(const thalweg_endpoint_options* options);
Result<SendOptions> send_options_of(const thalweg_peer_send_options* options);
Result<RecvOptions> recv_options_of(const thalweg_peer_recv_options* options);

}  // namespace thalweg::capi
