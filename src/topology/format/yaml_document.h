// The border to yaml-cpp: it turns text into a tree, or into an error with a line. It never throws.
#pragma once

#include <yaml-cpp/node/node.h>

#include <string_view>

#include <thalweg/result.h>

namespace thalweg::topology {

// The text must be one YAML document.
Result<YAML::Node> load_yaml_document(std::string_view text, std::string_view source);

}  // namespace thalweg::topology
