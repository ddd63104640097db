// Makes PyTorch's store the one through which the ranks of a communicator find each other.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include <thalweg/rendezvous.h>

namespace thalweg::python {

// Uses its own connection to the store where there is one, so that no other thread's wait() blocks
// it.
std::shared_ptr<Rendezvous> rendezvous_of(const c10::intrusive_ptr<c10d::Store>& store);

// Returns "host:port" in the direction of the other ranks: the store's server if it has one,
// MASTER_ADDR, or this host.
std::string address_of(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace thalweg::python
