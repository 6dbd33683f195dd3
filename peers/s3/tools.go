//go:build tools

// Package tools pins the version of the S3 service.
package tools

import _ "github.com/versity/versitygw/cmd/versitygw"
