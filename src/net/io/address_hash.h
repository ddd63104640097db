// A hash of addresses, for tables of them.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "net/io/address.h"

namespace thalweg::net {

struct SocketAddressHash {
  std::size_t operator()(const SocketAddress& address) const {
    return std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(address.get()), address.size()});
  }
};

}  // namespace thalweg::net
