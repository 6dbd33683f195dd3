package main

import (
	"encoding/hex"
	"io"
	"os"

	openapi "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// Writes a small OpenAPI v2 document as gnostic encodes it.
func openAPI(emit func(any)) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	document, err := openapi.ParseDocument(text)
	if err != nil {
		return err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(document)
	emit(hex.EncodeToString(encoded))
	return err
}
