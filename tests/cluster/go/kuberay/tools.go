//go:build tools

// Package tools keeps the command of the test cluster in this module's list of requirements.
package tools

import _ "github.com/ray-project/kuberay/ray-operator"
