// The folder of a testbed, where other processes find it. It holds the control socket, the lock
// that the testbed's process holds as long as it lives, the log, the network as a YAML file, and a
// list of the names of its namespaces.
//
// So a testbed is up while its lock is held. If its process was killed, the list says what is left
// behind; take_down() removes that, and so does the next testbed of that name.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "net/io/control_connection.h"
#include "net/io/fd.h"

namespace thalweg::lab {

class TestbedPlace {
 public:
  static constexpr std::size_t kMaxName = 24;
  // The environment variable that names the folder of all testbeds, instead of the user's. It is
  // for programs on hosts, where the user may seem to be another one.
  static constexpr const char* kFolderVariable = "THALWEG_TESTBED_FOLDER";

  // The place of the testbed of this name (letters, digits and '-'). The folder need not exist.
  static Result<TestbedPlace> of(const std::string& name);
  // The places of all folders of testbeds that there are, sorted by name.
  static std::vector<TestbedPlace> all();

  [[nodiscard]] const std::string& name() const { return name_; }
  // Whether this process was root's when of() or all() was called. Entering a user namespace does
  // not change the answer.
  [[nodiscard]] bool is_of_root() const { return of_root_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string parent_folder() const { return folder_.substr(0, folder_.rfind('/')); }
  [[nodiscard]] std::string log() const { return folder_ + "/log"; }
  // The file with the network, for jobs on its hosts.
  [[nodiscard]] std::string topology() const { return folder_ + "/topology.yaml"; }

  // Makes the folder, which only its owner may enter, takes the lock, and removes what an earlier
  // process left behind. It is an error if the testbed is up. Closing the descriptor frees the
  // lock.
  [[nodiscard]] Result<net::Fd> occupy() const;
  // A socket that listens for control connections.
  [[nodiscard]] Result<net::Fd> listen() const;
  // To be called before a namespace of this name is made, so that it is removed with the testbed.
  [[nodiscard]] Status remember_namespace(const std::string& name) const;

  // The process that holds the lock, if one does; 0 if its number is not known.
  [[nodiscard]] std::optional<pid_t> holder() const;
  // Sends one request and returns the answer. The error says that the testbed is not up, or is what
  // the testbed answered.
  [[nodiscard]] Result<nlohmann::json> ask(const nlohmann::json& request) const;
  // Opens a connection. A capture that was started on it ends with it. ask() sends a request on it.
  [[nodiscard]] Result<net::ControlConnection> connect() const;
  [[nodiscard]] static Result<nlohmann::json> ask(net::ControlConnection& connection,
                                                  const nlohmann::json& request);

  // Ends the testbed's process if there is one, and the programs in its namespaces. Removes the
  // namespaces and the folder.
  [[nodiscard]] Status take_down() const;
  // Does the same, except for the testbed's process. Only the process that holds the lock may call
  // this.
  [[nodiscard]] Status remove_rest() const;

 private:
  TestbedPlace(std::string name, std::string folder, bool of_root)
      : name_(std::move(name)), folder_(std::move(folder)), of_root_(of_root) {}
  // Takes the lock. The descriptor is not valid if another process has it.
  [[nodiscard]] Result<net::Fd> lock() const;
  [[nodiscard]] Status remove_namespaces() const;
  [[nodiscard]] std::string socket() const { return folder_ + "/control"; }

  std::string name_;
  std::string folder_;
  bool of_root_;
};

}  // namespace thalweg::lab
