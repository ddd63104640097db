// The border to yaml-cpp: text in, a tree or an error with a line out, no exception.
#pragma once

#include <yaml-cpp/node/node.h>

#include <string_view>

#include <thalweg/result.h>

namespace thalweg {

// The text must be one YAML document.
Result<YAML::Node> load_yaml_document(std::string_view text, std::string_view source);

}  // namespace thalweg
