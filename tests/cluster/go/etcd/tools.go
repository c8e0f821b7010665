//go:build tools

// Package tools keeps the command of the test cluster in this module's list of requirements.
package tools

import _ "go.etcd.io/etcd/server/v3"
