package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
)

const (
	// How often a struct may be inside of itself.
	maxNesting = 2
	// How deep lists may be in one another and have two elements; below that they have one.
	maxPairs = 2
)

// Sets the fields of objects. Values are taken from the pools in turn; whether a field is set, and how many elements a list
// has, is by chance.
type filler struct {
	values *pools
	random *rand.Rand
	// Sets every field; otherwise some of them, and some to what is empty.
	full bool
	// How often each struct is around the value to be filled, and how many lists are.
	nesting map[reflect.Type]int
	lists   int
}

// A filler for one object of a kind that sets every field if the seed is 0.
func newFiller(values *pools, kind kind, seed uint64) *filler {
	hash := fnv.New64a()
	hash.Write([]byte(kind.gvk.String()))
	return &filler{
		values:  values,
		random:  rand.New(rand.NewPCG(seed, hash.Sum64())),
		full:    seed == 0,
		nesting: map[reflect.Type]int{},
	}
}

func (f *filler) chance(probability float64) bool {
	return f.random.Float64() < probability
}

func (f *filler) fill(value reflect.Value) error {
	if f.values.setSpecial(value) {
		return nil
	}
	switch value.Kind() {
	case reflect.Struct:
		return f.fillStruct(value)
	case reflect.Pointer:
		return f.fillPointer(value)
	case reflect.Slice:
		return f.fillSlice(value)
	case reflect.Map:
		return f.fillMap(value)
	}
	return f.values.setScalar(value)
}

func (f *filler) fillStruct(value reflect.Value) error {
	f.nesting[value.Type()]++
	defer func() { f.nesting[value.Type()]-- }()
	probability := 0.25
	if len(f.nesting) == 1 {
		// Of metadata, spec and status, at least one shall be there.
		probability = 0.75
	}
	for i := range value.NumField() {
		structField := value.Type().Field(i)
		if isTypeMeta(structField) || f.isTooDeep(structField.Type) || !f.full && !f.chance(probability) {
			continue
		}
		if err := f.fill(value.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", structField.Name, err)
		}
	}
	return nil
}

// Whether a field's struct is inside of itself often enough.
func (f *filler) isTooDeep(goType reflect.Type) bool {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice || goType.Kind() == reflect.Map {
		goType = goType.Elem()
	}
	return f.nesting[goType] >= maxNesting
}

// Now and then, a scalar that is pointed to is zero: unlike in a field, it is written.
func (f *filler) fillPointer(value reflect.Value) error {
	value.Set(reflect.New(value.Type().Elem()))
	if value.Elem().Kind() != reflect.Struct && f.chance(0.2) {
		return nil
	}
	return f.fill(value.Elem())
}

func (f *filler) fillSlice(value reflect.Value) error {
	value.Set(reflect.MakeSlice(value.Type(), f.size(), 2))
	f.lists++
	defer func() { f.lists-- }()
	for i := range value.Len() {
		if err := f.fill(value.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// How many elements a list has.
func (f *filler) size() int {
	switch {
	case !f.full && f.chance(0.2):
		return 0
	case f.lists < maxPairs && f.chance(0.4):
		return 2
	}
	return 1
}

func (f *filler) fillMap(value reflect.Value) error {
	value.Set(reflect.MakeMap(value.Type()))
	if !f.full && f.chance(0.2) {
		return nil
	}
	f.lists++
	defer func() { f.lists-- }()
	for _, key := range f.values.keys() {
		element := reflect.New(value.Type().Elem()).Elem()
		if err := f.fill(element); err != nil {
			return err
		}
		value.SetMapIndex(reflect.ValueOf(key).Convert(value.Type().Key()), element)
	}
	return nil
}
