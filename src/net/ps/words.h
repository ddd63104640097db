// The longer answers of a parameter server to its clients: JSON in messages of wire/ps_message.h
// (docs/parameter-server.md lists the fields).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/result.h>

#include "net/atp/job_message.h"
#include "net/atp/node.h"

namespace thalweg::net {

// Bytes; a longer answer ends the connection.
inline constexpr std::size_t kMaxPsWords = std::size_t{1} << 16;

// Tells a client how gradients and values travel.
struct PsWelcome {
  Transport transport = Transport::kTcp;
  // For DLCP: port and token of the server's endpoint, the name that the client's endpoint must
  // use, and the loss bounds.
  std::uint16_t port = 0;
  std::uint64_t token = 0;
  std::string key = {};  // of the endpoint's packets, 32 hexadecimal digits; empty: none
  std::string name;
  double push_loss = 0;
  double pull_loss = 0;
};
[[nodiscard]] std::string to_text(const PsWelcome& welcome);
[[nodiscard]] Result<PsWelcome> ps_welcome_from(const std::string& text);

// An ATP job of all workers, with the parameter server as its server.
struct AtpGroupGrant {
  std::uint64_t number = 0;          // of the group; never used again
  JobGrant job;                      // `elements`: those of a packet
  std::vector<std::string> workers;  // "host:port" of each worker
  std::string server;                // "host:port"
};
[[nodiscard]] std::string to_text(const AtpGroupGrant& group);
[[nodiscard]] Result<AtpGroupGrant> atp_group_from(const std::string& text);
// Sets job, addresses, key and elements of `options`.
[[nodiscard]] Status fill_from(const AtpGroupGrant& group, AtpNodeOptions& options);

}  // namespace thalweg::net
