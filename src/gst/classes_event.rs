// SPDX-License-Identifier: MPL-2.0
//! The event by which elements behind models learn which classes objects can have. trtnms sends it before the first frame of a
//! model. It stays on the pads, so that elements that are linked later get it too.

use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::postprocess::KnownClasses;

use super::property;

const NAME: &str = "trt-classes";

/// Any class.
pub const ALL: &str = "*";

/// The classes of each model before an element, but for those that give no boxes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassesOfModels(pub Vec<KnownClasses>);

/// What an event says, if it is this one.
pub fn read(event: &gst::EventRef) -> Option<ClassesOfModels> {
    let gst::EventView::CustomDownstreamSticky(event) = event.view() else { return None };
    let models = event.structure().filter(|structure| structure.name() == NAME)?.get::<gst::Array>("models").ok()?;
    let model = |value: &gst::glib::SendValue| {
        let model = value.get::<gst::Structure>().ok()?;
        let labels = model.get::<gst::Array>("labels").ok()?;
        let labels = labels.iter().map(|label| property::text_of(label).unwrap_or_default()).collect();
        Some(KnownClasses { labels, count: model.get::<u64>("count").ok().map(|count| count as usize) })
    };
    Some(ClassesOfModels(models.iter().filter_map(model).collect()))
}

impl ClassesOfModels {
    pub fn event(&self) -> gst::Event {
        let models = self.0.iter().map(|KnownClasses { labels, count }| {
            let model = gst::Structure::builder("model").field("labels", gst::Array::new(labels));
            match count {
                Some(count) => model.field("count", *count as u64).build(),
                None => model.build(),
            }
        });
        let structure = gst::Structure::builder(NAME).field("models", gst::Array::new(models)).build();
        gst::event::CustomDownstreamSticky::new(structure)
    }

    /// Warnings of the names in a list with commas that no model has. `consequence` is what then happens. Without a model that finds
    /// objects there are none: those of the frames are of other elements, whose classes are not known.
    pub fn warnings(&self, property: &str, list: &str, consequence: &str) -> Vec<Error> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.filter_map(|name| self.check(property, name).err()).map(|error| error.and_remedy(consequence)).collect()
    }

    /// Checks that objects can have a class of that name, which the user has given for `property`.
    ///
    /// # Errors
    /// `Settings`, if no model has it.
    pub fn check(&self, property: &str, name: &str) -> Result<()> {
        let ClassesOfModels(models) = self;
        match &models[..] {
            [] => Err(Error::new(ErrorKind::Settings, format!("{property}: the model has no boxes"))
                .cause("it finds no objects, but classes or maps of the whole picture")
                .remedy(format!("Use a model that detects objects, or leave {property} unset"))),
            _ if models.iter().any(|model| model.id(name).is_some()) => Ok(()),
            [only] => only.check(property, name),
            // All of them, to be named.
            several => KnownClasses {
                labels: several.iter().flat_map(|model| &model.labels).cloned().collect(),
                count: several.iter().filter_map(|model| model.count).max(),
            }
            .check(property, name),
        }
    }

    /// The same, where [`ALL`] is a name as well.
    ///
    /// # Errors
    /// As [`ClassesOfModels::check`].
    pub fn check_or_all(&self, property: &str, name: &str) -> Result<()> {
        if name == ALL && !self.0.is_empty() { Ok(()) } else { self.check(property, name) }
    }
}

/// The names that were looked up last, and where. The event comes again where elements are linked again.
#[derive(Default)]
pub struct CheckedClasses(Option<(ClassesOfModels, String)>);

impl CheckedClasses {
    /// As [`ClassesOfModels::warnings`]; none where these names were looked up there just before.
    pub fn warnings(&mut self, known: ClassesOfModels, property: &str, list: &str, consequence: &str) -> Vec<Error> {
        let wanted = Some((known, list.to_string()));
        if self.0 == wanted {
            return Vec::new();
        }
        self.0 = wanted;
        self.0.iter().flat_map(|(known, list)| known.warnings(property, list, consequence)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read() {
        gst::init().unwrap();
        let known =
            |labels: &[&str], count| KnownClasses { labels: labels.iter().map(|l| l.to_string()).collect(), count };
        let models = ClassesOfModels(vec![known(&["a", "b"], Some(2)), known(&[], None)]);
        assert_eq!(read(&models.event()), Some(models));
        assert_eq!(read(&ClassesOfModels::default().event()), Some(ClassesOfModels::default()));
        assert_eq!(read(&gst::event::Eos::new()), None);
        let other = gst::event::CustomDownstreamSticky::new(gst::Structure::new_empty("other"));
        assert_eq!(read(&other), None);
    }

    #[test]
    fn a_class_is_one_of_any_model() {
        let known = |labels: &[&str]| KnownClasses {
            labels: labels.iter().map(|label| label.to_string()).collect(),
            count: Some(labels.len()),
        };
        let models = ClassesOfModels(vec![known(&["person", "car"]), known(&["face"])]);
        for name in ["person", "face", "1"] {
            models.check("blur", name).unwrap();
        }
        for name in ["dog", "2"] {
            let error = models.check("blur", name).unwrap_err().message();
            assert!(
                error.contains(&format!("blur: the model has no class “{name}”: its classes are person, car, face"))
            );
        }
        let error = ClassesOfModels::default().check("blur", "person").unwrap_err().message();
        assert!(error.contains("has no boxes"), "{error}");
        assert!(models.check("classes", ALL).is_err() && models.check_or_all("blur", ALL).is_ok());
        assert!(ClassesOfModels::default().check_or_all("blur", ALL).is_err());
    }

    #[test]
    fn each_name_of_a_list_that_no_model_has_is_told() {
        let labels = vec!["person".to_string(), "car".to_string()];
        let models = ClassesOfModels(vec![KnownClasses { labels, count: Some(2) }]);
        let told = |list: &str| -> Vec<String> {
            models.warnings("classes", list, "Nothing is followed").iter().map(Error::message).collect()
        };
        assert_eq!(told(" person , 1,,"), [""; 0]);
        let both = told("dog,person,2");
        assert!(both.len() == 2 && both[0].contains("“dog”") && both[1].contains("“2”"), "{both:?}");
        assert!(both[0].ends_with("Nothing is followed."), "{both:?}");
        assert!(ClassesOfModels::default().warnings("classes", "dog", "").is_empty(), "objects are of others");
        let mut checked = CheckedClasses::default();
        let mut told = |list: &str| checked.warnings(models.clone(), "classes", list, "").len();
        assert_eq!(["dog", "dog", "dog,cat", "dog"].map(&mut told), [1, 0, 2, 1]);
    }
}
