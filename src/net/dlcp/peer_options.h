// The options of the protocol for one peer, from those of the endpoint and from what is known about
// the path.
#pragma once

#include <thalweg/endpoint.h>

#include "net/dlcp/dlcp_peer.h"
#include "proto/dlcp/options.h"

namespace thalweg::net {

[[nodiscard]] proto::DlcpOptions dlcp_options(const DlcpPeer::Parts& parts,
                                              const EndpointOptions& options);

}  // namespace thalweg::net
