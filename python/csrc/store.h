// PyTorch's store as the one by which the ranks of a communicator find each other.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include <thalweg/rendezvous.h>

namespace thalweg::python {

// Uses a connection of its own where the store has any, so that nobody's wait() holds it up.
std::shared_ptr<Rendezvous> rendezvous_of(const c10::intrusive_ptr<c10d::Store>& store);

// "host:port" towards which the other ranks are: of the store's server if it has one, of
// MASTER_ADDR, or this host.
std::string address_of(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace thalweg::python
