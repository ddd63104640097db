// The implementation of a MeetingPlace (thalweg/meeting_place.h), and its address in parts.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/meeting_place.h>

#include "net/io/address.h"
#include "net/io/fd.h"
#include "net/io/home_process.h"
#include "net/store/store_server.h"
#include "wire/authenticate.h"

namespace thalweg::net {

// "token store streams": the token of the store in hexadecimal digits, the "host:port" of the
// store, and a StreamAddress (net/auth/stream_key.h).
struct PlaceAddress {
  wire::JobToken token = 0;
  std::string store;
  std::string streams;
  [[nodiscard]] static Result<PlaceAddress> parse(const std::string& text);
  [[nodiscard]] std::string to_string() const;
  // The host of the first stream's address. Ranks with the same one share a host.
  [[nodiscard]] std::string host() const;
};

// The sockets of one address of a place.
struct PlaceSockets {
  std::vector<SocketAddress> addresses;  // of the interfaces, with port 0
  std::vector<Fd> sockets;               // one per address; they listen
  std::uint64_t challenge = 0;           // for StreamKey, if there is a key
  std::string streams;                   // PlaceAddress::streams
};

}  // namespace thalweg::net

namespace thalweg {

class MeetingPlace::Core {
 public:
  Core(std::vector<net::SocketAddress> addresses, wire::JobToken token,
       std::optional<wire::JobKey> key, net::StoreServer store)
      : addresses_(std::move(addresses)),
        token_(token),
        key_(std::move(key)),
        store_(std::move(store)) {}

  [[nodiscard]] const net::HomeProcess& home() const { return home_; }
  Result<std::string> address();
  // Sets a key of the store, soon and without waiting.
  void put(const std::string& key, const std::string& value) { store_.put(key, value); }
  // Gives away the sockets of this address, which must be the one that address() returns now.
  Result<net::PlaceSockets> take(const std::string& address);

 private:
  Status prepare();
  [[nodiscard]] std::string text() const;

  net::HomeProcess home_;
  std::vector<net::SocketAddress> addresses_;
  wire::JobToken token_;
  std::optional<wire::JobKey> key_;
  net::StoreServer store_;
  std::mutex mutex_;
  std::optional<net::PlaceSockets> next_;  // guarded by mutex_; none: no address was asked for
};

}  // namespace thalweg
